"""The parts list of a bundle as CycloneDX JSON, checked against the schema of its version."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from installer.packaging.errors import BuildFailed
from installer.packaging.parts import Part

_NAMESPACE = uuid.UUID("7d0c0c0e-5f0b-5d52-9f0e-2f0f4a2b7c11")
_PURLS = {
    "distribution": ("pypi", None),
    "own": ("pypi", None),
    "python": ("generic", None),
    "system": ("deb", "debian"),
}
"""The types and namespaces of package URLs."""


def parts_list(title: str, version: str, parts: Mapping[str, Part], files: Mapping[str, str], bundle: Path) -> str:
    """Return the document: one component for each part, with its files and their SHA-256 below it.

    The same bundle gives the same document, but for the time in it. Raises BuildFailed if it breaks the schema.
    """
    root = Component(name=title, version=version, type=ComponentType.APPLICATION, bom_ref=title)
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"{title} {version}"))
    bom.metadata.component = root
    components = []
    for name, part in sorted(parts.items()):
        places = sorted(place for place, owner in files.items() if owner == name)
        components.append(_component(part, _files(bundle, name, places)))
    bom.components.update(components)
    bom.register_dependency(root, components)
    document = JsonV1Dot6(bom).output_as_string(indent=1)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)
    if problem is not None:
        raise BuildFailed(f"The parts list breaks its schema ({problem}); correct sbom.py.")
    return document


def _component(part: Part, files: Iterable[Component]) -> Component:
    kind, namespace = _PURLS[part.kind]
    reference = (
        (ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(part.homepage)),) if part.homepage else ()
    )
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{part.kind}:{part.name}@{part.version}",
        purl=PackageURL(type=kind, namespace=namespace, name=part.name, version=part.version),
        licenses=[licence] if (licence := _licence(part.licence)) is not None else (),
        external_references=reference,
        components=files,
    )


def _licence(words: str) -> License | None:
    """Return an SPDX expression where the words are one, else a licence of that name."""
    if not words:
        return None
    return LicenseFactory().make_from_string(words)


def _files(bundle: Path, part: str, places: Iterable[str]) -> list[Component]:
    return [
        Component(
            name=place,
            type=ComponentType.FILE,
            bom_ref=f"{part}/{place}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256(bundle / place))],
        )
        for place in places
    ]


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
