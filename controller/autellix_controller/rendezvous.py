"""Rendezvous hashing (Thaler and Ravishankar, 1998): who knows the same places chooses the same one for a thing."""

import hashlib


def draw(thing: str, place: str) -> bytes:
    """The lot of a place for a thing, 8 bytes: of the places that are left, the extreme one is chosen. A place that
    comes or goes changes the choice only for the things that are its own."""
    return hashlib.blake2b(f"{thing}\0{place}".encode(), digest_size=8).digest()
