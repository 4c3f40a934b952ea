"""The tasks of Label Studio with annotations and predictions, and the labelling config for them.

Known cells become an annotation of their task, suggestions become its prediction. Both use two ``Choices``
controls, ``present`` and ``absent``, because a box that is not ticked does not say that anybody looked. Band and
score of every suggestion are in the task's data, where the Data Manager can filter by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from satl.export.content import ImageRow, Source
from satl.export.escaping import attribute, json_list, json_text, number
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS

LOCAL_FILES = "/data/local-files/?d="
"""Where Label Studio serves files below its document root."""
CONTROLS = {PRESENT: "present", ABSENT: "absent"}
SUGGESTION = "suggestion"
"""Results of a prediction that satl makes are called so."""


def labelling_config(classes: Sequence[str]) -> str:
    """Return the labelling config: one box per class to tick as present, and one as absent.

    >>> print(labelling_config(["cat & dog"]))
    <View>
      <Image name="image" value="$image" zoom="true"/>
      <Header value="Present"/>
      <Choices name="present" toName="image" choice="multiple" showInline="true">
        <Choice value="cat &amp; dog"/>
      </Choices>
      <Header value="Absent"/>
      <Choices name="absent" toName="image" choice="multiple" showInline="true">
        <Choice value="cat &amp; dog"/>
      </Choices>
    </View>
    <BLANKLINE>
    """
    choices = "".join(f"    <Choice value={attribute(name)}/>\n" for name in classes)
    controls = "".join(
        f'  <Header value="{name.capitalize()}"/>\n'
        f'  <Choices name="{name}" toName="image" choice="multiple" showInline="true">\n{choices}  </Choices>\n'
        for name in CONTROLS.values()
    )
    return f'<View>\n  <Image name="image" value="$image" zoom="true"/>\n{controls}</View>\n'


def address(file: str, prefix: str | None) -> str:
    """Return where Label Studio finds an image.

    Args:
        prefix: an address of a web server or a bucket; anything else is a folder below Label Studio's document root.

    >>> address("a b.jpg", None)
    '/data/local-files/?d=a%20b.jpg'
    >>> address("a b.jpg", "photos")
    '/data/local-files/?d=photos/a%20b.jpg'
    >>> address("a b.jpg", "https://example.org/photos")
    'https://example.org/photos/a%20b.jpg'
    >>> address("a b.jpg", "s3://bucket/photos/")
    's3://bucket/photos/a b.jpg'
    """
    if prefix is None:
        return LOCAL_FILES + quote(file)
    if (prefix.startswith("/data/") or "://" in prefix) and not prefix.endswith(("/", "=")):
        prefix += "/"
    if prefix.startswith(("http://", "https://", "/data/")):
        return prefix + quote(file)
    if "://" in prefix:
        # The name of an object in a bucket is not an address yet: Label Studio makes one of it.
        return prefix + file
    folder = prefix.strip("/")
    return LOCAL_FILES + quote(f"{folder}/{file}" if folder else file)


def tasks_of(source: Source) -> Iterator[str]:
    """Yield the tasks as JSON."""
    names = [json_text(name) for name in source.table.classes]
    model = json_text(source.model)
    for image in source.images():
        parts = [f'{{"data": {_data(image, names, source.address)}']
        known = [
            _result("satl", value, [names[at] for at in columns])
            for value, columns in ((PRESENT, image.present), (ABSENT, image.absent))
            if columns
        ]
        if known:
            # Label Studio takes an imported annotation for ground truth unless it says otherwise.
            parts.append(f'"annotations": [{{"ground_truth": false, "result": {json_list(known)}}}]')
        if image.suggested:
            results = [
                _result(SUGGESTION, value, chosen)
                for value in (PRESENT, ABSENT)
                if (chosen := [names[at] for at, said, *_ in image.suggested if said == value])
            ]
            parts.append(
                f'"predictions": [{{"model_version": {model}{_certainty(image)}, "result": {json_list(results)}}}]'
            )
        yield ", ".join(parts) + "}"


def _data(image: ImageRow, names: list[str], prefix: str | None) -> str:
    fields = [f'"image": {json_text(address(image.file, prefix))}', f'"image_id": {json_text(image.image)}']
    if image.split is not None:
        fields.append(f'"split": {json_text(image.split)}')
    for code, band in enumerate(SUGGESTED_BANDS):
        scores = [f"{names[at]}: {number(score)}" for at, _, score, of in image.suggested if of == code]
        if scores:
            fields.append(f'"{band}": {{{", ".join(scores)}}}')
    return f"{{{', '.join(fields)}}}"


def _result(mark: str, value: int, choices: list[str]) -> str:
    control = CONTROLS[value]
    return (
        f'{{"id": "{mark}-{control}", "from_name": "{control}", "to_name": "image", "type": "choices", '
        f'"value": {{"choices": {json_list(choices)}}}}}'
    )


def _certainty(image: ImageRow) -> str:
    """Return the score of a prediction: of its least certain cell, so that sorting by it finds what is doubtful."""
    lowest = min(score if value == PRESENT else 1 - score for _, value, score, _ in image.suggested)
    # Label Studio refuses a score outside [0, 1], and a model may use another scale.
    usable = all(0 <= score <= 1 for _, _, score, _ in image.suggested)
    return f', "score": {number(lowest)}' if usable else ""
