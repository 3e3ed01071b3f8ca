#!/usr/bin/env python3
"""Prints the bill of materials of an image: SPDX 2.3 as JSON, from what dpkg and pip have written down.

    docker/sbom.py IMAGE ROOT [WHEELS]

ROOT: a folder with var/lib/dpkg/status and usr/lib/os-release of the image. WHEELS: a folder of `pip install --target`
whose libraries are in the image.
"""

import datetime
import email.parser
import hashlib
import json
import os
import pathlib
import re
import sys


def headers(text):
    return email.parser.HeaderParser().parsestr(text)


def installed(root):
    """The installed packages, as dpkg describes them, and the name and version of the distribution."""
    packages = [headers(text) for text in (root / "var/lib/dpkg/status").read_text().split("\n\n") if text.strip()]
    lines = (root / "usr/lib/os-release").read_text().splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return [p for p in packages if p["Status"].endswith(" installed")], facts["ID"], facts["VERSION_ID"].strip('"')


def spdx_id(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def package(kind, name, version, supplier, source, url):
    return {
        "SPDXID": spdx_id(f"{kind}-{name}"),
        "name": name,
        "versionInfo": version,
        "supplier": f"Organization: {supplier}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "sourceInfo": source,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}],
    }


def debian_packages(root):
    packages, distribution, release = installed(root)
    for p in sorted(packages, key=lambda p: p["Package"]):
        version = p["Version"].replace("+", "%2B").replace(":", "%3A")
        yield package(
            "deb",
            p["Package"],
            p["Version"],
            p["Maintainer"].split(" <")[0],
            f"built from {p['Source'] or p['Package']}",
            f"pkg:deb/{distribution}/{p['Package']}@{version}?arch={p['Architecture']}&distro={distribution}-{release}",
        )


def wheels(folder):
    for path in sorted(folder.glob("*.dist-info/METADATA")):
        p = headers(path.read_text())
        name, version = p["Name"].lower(), p["Version"]
        yield package(
            "pypi", name, version, p["Author"] or name, "the libraries of this wheel", f"pkg:pypi/{name}@{version}"
        )


def document(image, root, folder):
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    described = {
        "SPDXID": "SPDXRef-image",
        "name": f"trainyard-{image}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    rows = [*debian_packages(root), *(wheels(folder) if folder else [])]
    digest = hashlib.sha256(json.dumps([described, rows], sort_keys=True).encode()).hexdigest()
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")]
    relations += [("SPDXRef-image", "CONTAINS", row["SPDXID"]) for row in rows]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"trainyard-{image}",
        "documentNamespace": f"https://trainyard.invalid/spdx/trainyard-{image}-{digest}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: trainyard-docker-sbom"],
        },
        "packages": [described, *rows],
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    wheel_folder = pathlib.Path(sys.argv[3]) if sys.argv[3:] and sys.argv[3] else None
    json.dump(document(sys.argv[1], pathlib.Path(sys.argv[2]), wheel_folder), sys.stdout, indent=1)
    print()
