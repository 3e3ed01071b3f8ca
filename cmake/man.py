"""Writes manual pages from the --help of the programs: `man.py VERSION OUT PROGRAM...`.

The pages of trainyard-NAME are in section 8 for programs that a service manager or an agent starts, else in section 1.
For `trainyard` each command has a page too, trainyard-COMMAND.1. A help text consists of blocks between blank lines:

    NAME ARGUMENTS, usage: NAME ...          the synopsis
    Options, Example, Exit status, ...       a title, and indented lines below it: a section
      --option VALUE  text                   options, also without a title
    anything else                            paragraphs

The output is the same for the same help, on every machine and at every time.
"""

import pathlib
import re
import subprocess
import sys

USERS = ("trainyard", "trainyard-train")
OTHERS = ("trainyard-controller", "trainyard-executor", "trainyard-worker", "trainyard-program", "trainyard-code", "trainyard-environment", "trainyard-data")
# An item: a term, at least two spaces, and a text that is not another option. Or a term alone. Options without a letter
# are indented further.
ITEM = re.compile(r"^ {2}(?: {1,4}(?=-))?(\S.*?)(?:\s{2,}(?=[^\s-])(.*))?$")


def section_of(name):
    return 8 if name in OTHERS else 1


def escaped(text, dashes=False):
    text = text.replace("\\", r"\e")
    text = text.replace("-", r"\-") if dashes else re.sub(r"(?<!\w)-(?=\S)|(?<=\\-)-", r"\\-", text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def paragraphs(lines):
    """Filled text; lines that are indented or that end in a colon keep their ends."""
    out = [".PP"]
    for line in lines:
        if line.startswith("  ") and out[-1] != ".br":
            out.append(".br")
        out.append(escaped(line.strip()))
        if line.startswith("  "):
            out.append(".br")
    return out


def items(lines):
    """[[term, text]]: lines that are indented deeper continue the text of the item above them."""
    found = []
    for line in lines:
        if match := ITEM.match(line):
            found.append([match.group(1).strip(), (match.group(2) or "").strip()])
        else:
            found[-1][1] = (found[-1][1] + " " + line.strip()).strip()
    return found


def item_list(pairs):
    out = []
    for term, text in pairs:
        out += [".TP", r"\fB" + escaped(term, True) + r"\fR"] + ([escaped(text)] if text else [])
    return out


def example(lines):
    return [".PP", ".nf", ".RS 4"] + [escaped(line.strip(), True) for line in lines] + [".RE", ".fi"]


class Page:
    def __init__(self, text):
        self.synopsis, self.uses, self.summary, self.body, self.sections = [], [], "", [], {}
        for block in re.split(r"\n\s*\n", text.strip("\n")):
            self.add(block.split("\n"))

    def add(self, lines):
        first = lines[0]
        usage = re.match(r"usage: (.*)", first)
        titled = re.match(r"([Ee]xamples?):\s*(.*)", first)
        if summary := re.match(r"trainyard\S*: (.*)", first):
            self.summary = summary.group(1)
        elif usage or re.match(r" *trainyard\S*( |$)", first) and not self.synopsis:
            for line in [usage.group(1) if usage else first] + lines[1:]:
                if re.match(r"    (?!.*trainyard)\S", line) or re.match(r"    [\[|]", line):
                    self.synopsis[-1] += " " + line.strip()
                    continue
                words, _, text = re.sub(r"\s{3,}", "\0", line.strip(), count=1).partition("\0")
                self.synopsis.append(words)
                if text:
                    self.uses.append([words, text])
        elif titled:
            self.sections["EXAMPLES"] = ([titled.group(2)] if titled.group(2) else []) + lines[1:]
        elif re.fullmatch(r"[A-Z][a-z]+( [a-z]+)?", first) and len(lines) > 1 and lines[1].startswith("  "):
            self.sections[{"Example": "EXAMPLES"}.get(first, first.upper())] = lines[1:]
        elif re.match(r" {2,6}-", first):
            self.sections["OPTIONS"] = self.sections.get("OPTIONS", []) + lines
        else:
            self.summary = self.summary or re.split(r"(?<=\.)\s|$", " ".join(lines), maxsplit=1)[0]
            self.body.append(lines)

    def summary_text(self):
        """As in a list of pages: `lists jobs`."""
        text = self.summary.rstrip(".")
        return text if re.match(r"[A-Z]{2}", text) else text[0].lower() + text[1:]

    def roff(self, name, version, see_also):
        out = [f'.TH {escaped(name.upper(), True)} {section_of(name)} "" "trainyard {version}" "Trainyard"',
               ".SH NAME", escaped(name, True) + r" \- " + escaped(self.summary_text()), ".SH SYNOPSIS"]
        for line in self.synopsis:
            words = line.split(" ")
            bold = 2 if name != "trainyard" and words[0] == "trainyard" else 1
            out += [".br", r"\fB" + escaped(" ".join(words[:bold]), True) + r"\fR " + escaped(" ".join(words[bold:]), True)]
        out.append(".SH DESCRIPTION")
        for lines in self.body or [[self.summary]]:
            out += paragraphs(lines)
        out += item_list(self.uses)
        for title, lines in self.sections.items():
            out += [f".SH {title}"] + (example(lines) if title == "EXAMPLES" else item_list(items(lines)))
        out += [".SH SEE ALSO", ", ".join(rf"\fB{escaped(other, True)}\fR({section_of(other)})" for other in see_also)]
        return "\n".join(line.rstrip() for line in out) + "\n"


def help_of(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def write(folder, name, text, version, see_also):
    (folder / f"{name}.{section_of(name)}").write_text(Page(text).roff(name, version, see_also))


def main():
    version, folder, programs = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("trainyard*.[18]"):
        old.unlink()
    names = [pathlib.Path(program).name for program in programs]
    for name, program in zip(names, programs):
        others = [other for other in names if other != name]
        if name != "trainyard":
            write(folder, name, help_of(program, "--help"), version, others or ["trainyard-train"])
            continue
        text = help_of(program, "help")
        commands = [term for term, _ in items(Page(text).sections["COMMANDS"]) if term not in ("help", "version")]
        write(folder, name, text, version, [f"trainyard-{command}" for command in commands] + others)
        for command in commands:
            write(folder, f"trainyard-{command}", help_of(program, "help", command), version, ["trainyard"])


main()
