"""The keys with which engines let controllers in, and their exchange."""
