"""Writes outputs.json, the answers of which answers.json is made by the test `answers`."""

import json
import pathlib

from cases import ANSWERS
from record import plain

rows = [{"action": action, "output": plain(output)} for action, output in ANSWERS]
path = pathlib.Path(__file__).parent / "outputs.json"
path.write_text(json.dumps(rows, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
