"""schemathesis makes requests from the published schema, good ones and bad ones; nothing may answer 5xx."""

import asyncio
import json
import sys
from pathlib import Path

from autellix_controller.gateway.routes import ROUTES
from support.fake_engine import MODEL, fake_engine
from support.running_controller import running_controller

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


async def test_no_request_made_from_the_schema_gets_a_server_error(tmp_path: Path) -> None:
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", "--phases=examples,coverage,fuzzing"),
        *("--checks", CHECKS, "--max-examples=5", "--seed=1", "--workers=1", "--generation-database=none"),
    ]
    async with fake_engine() as engine, running_controller(engine) as replica:
        _, schema = await replica.json("GET", "/openapi.json")
        # The one thing that a schema cannot know; without it every call would end with an unknown model.
        for path in ROUTES:
            content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            content["schema"]["properties"]["model"] = {"enum": [MODEL]}
        (tmp_path / "openapi.json").write_text(json.dumps(schema))
        process = await asyncio.create_subprocess_exec(
            *command,
            "openapi.json",
            f"--url={replica.url}",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        assert len(engine.calls) > 20, output.decode()
