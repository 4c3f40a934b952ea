"""The report on the image files of a table, as plain data; :mod:`satl.images.file_checks` makes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DuplicateGroup:
    """Images that are the same, by the content of their files or by their looks.

    Attributes:
        images: their ids.
        contradictory: whether some class is known to be present in one and absent in another.
        splits: the splits they lie in; more than one means that a test image was seen in training.
    """

    images: tuple[str, ...]
    contradictory: bool
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileReport:
    """What was found of the image files of a table.

    Attributes:
        folder: where they were looked for.
        checked: number of images.
        missing: ids without a file.
        unreadable: id and reason of files that cannot be decoded completely.
        duplicates: images with the same content.
        hint: what the missing ones have in common, if it is known.
        near_duplicates: images that look the same and have not all the same content.
    """

    folder: str
    checked: int
    missing: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    duplicates: tuple[DuplicateGroup, ...]
    hint: str | None = None
    near_duplicates: tuple[DuplicateGroup, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before training, one sentence each."""
        return tuple(_notes(self))


def counted(number: int, forms: str) -> str:
    """Return a number with the right one of two forms.

    >>> counted(1, "image has|images have"), counted(1200, "image|images")
    ('1 image has', '1,200 images')
    """
    one, many = forms.split("|")
    return f"{number:,} {one if number == 1 else many}"


def _notes(files: FileReport) -> list[str]:
    notes = []
    if files.missing:
        hint = f" ({files.hint})" if files.hint else ""
        notes.append(
            f"{len(files.missing):,} of {files.checked:,} image files "
            f"{'is' if len(files.missing) == 1 else 'are'} missing in {files.folder}, such as "
            f"{files.missing[0]!r}{hint}."
        )
    if files.unreadable:
        image, reason = files.unreadable[0]
        notes.append(
            f"{counted(len(files.unreadable), 'image file|image files')} cannot be decoded, "
            f"such as {image!r} ({reason}): replace them or remove their rows."
        )
    notes += _group_notes(files.duplicates, "the same content")
    notes += _group_notes(files.near_duplicates, "the same looks (saved again, resized or brightened)")
    return notes


def _group_notes(groups: tuple[DuplicateGroup, ...], what: str) -> list[str]:
    if not groups:
        return []
    leaks = [group for group in groups if len(group.splits) > 1]
    first = (leaks or groups)[0].images
    notes = [
        f"{counted(len(groups), 'group of images has|groups of images have')} {what}, "
        f"such as {first[0]!r} and {first[1]!r}."
    ]
    if leaks:
        notes.append(
            f"{len(leaks):,} of these groups spread over several splits (such as {' and '.join(leaks[0].splits)}), so "
            f"results there would be too good: keep one image of each."
        )
    clashes = sum(group.contradictory for group in groups)
    if clashes:
        notes.append(f"In {clashes:,} of these groups known labels contradict each other: correct them.")
    return notes
