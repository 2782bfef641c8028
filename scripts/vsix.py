#!/usr/bin/env python3
"""Packs packaging/vscode as an extension that `code --install-extension` takes.

Usage: scripts/vsix.py FILE

FILE is a zip archive with the same bytes each time: its times are fixed, and nothing in it is compressed.
"""

import json
import pathlib
import sys
import zipfile
from xml.sax.saxutils import escape, quoteattr

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "packaging/vscode"

TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"""

MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
    <DisplayName>{display}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
    </Properties>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def manifest(package):
    """What the archive says of itself, from package.json."""
    return MANIFEST.format(
        name=quoteattr(package["name"]),
        version=quoteattr(package["version"]),
        publisher=quoteattr(package["publisher"]),
        display=escape(package["displayName"]),
        description=escape(package["description"]),
        engine=quoteattr(package["engines"]["vscode"]),
    )


def main():
    """Writes the archive."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    package = json.loads((SOURCE / "package.json").read_text())
    files = {f"extension/{path.name}": path.read_bytes() for path in sorted(SOURCE.iterdir())}
    files["[Content_Types].xml"] = TYPES.encode()
    files["extension.vsixmanifest"] = manifest(package).encode()
    with zipfile.ZipFile(sys.argv[1], "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


main()
