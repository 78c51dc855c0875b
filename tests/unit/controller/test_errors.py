import json
import re
from pathlib import Path

import pytest

from autellix_controller.errors import ApiError, ErrorCode

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_has_the_shape_that_openai_clients_read(code: ErrorCode) -> None:
    error = ApiError(code, "why", param="model", retry_after_seconds=3)
    assert json.loads(error.body()) == {
        "error": {"message": "why", "type": code.kind, "param": "model", "code": code.code}
    }
    assert (error.status, error.headers()) == (code.status, [(b"retry-after", b"3")])


def test_the_documented_codes_are_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [(code, int(status), kind) for code, status, kind in rows] == [
        (code.code, code.status, code.kind) for code in ErrorCode
    ]
