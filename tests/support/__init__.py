"""What the tests of several components share."""
