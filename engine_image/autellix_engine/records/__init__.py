"""The path of call records from the scheduler to HTTP."""
