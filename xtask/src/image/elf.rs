//! Checks whether a program needs a dynamic loader, which an empty root does not contain.

/// The segment type that names the loader (`PT_INTERP`).
const INTERPRETER_SEGMENT: u32 = 3;

/// Whether the bytes are a 64-bit little-endian ELF program without a loader.
pub(super) fn is_static(program: &[u8]) -> bool {
    segment_kinds(program).is_some_and(|kinds| !kinds.contains(&INTERPRETER_SEGMENT))
}

/// The types of the program's segments (ELF-64 object file format, figures 2 and 6).
fn segment_kinds(program: &[u8]) -> Option<Vec<u32>> {
    const CLASS_64_LITTLE: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
    if !program.starts_with(&CLASS_64_LITTLE) {
        return None;
    }
    let offset = u64::from_le_bytes(read_field(program, 32)?);
    let size = u16::from_le_bytes(read_field(program, 54)?);
    let count = u16::from_le_bytes(read_field(program, 56)?);
    (0..count)
        .map(|index| {
            let place = offset.checked_add(u64::from(index) * u64::from(size))?;
            Some(u32::from_le_bytes(read_field(program, usize::try_from(place).ok()?)?))
        })
        .collect()
}

fn read_field<const SIZE: usize>(bytes: &[u8], offset: usize) -> Option<[u8; SIZE]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with segments of the given types.
    fn test_program(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        let count = u16::try_from(kinds.len()).expect("a few");
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        assert!(is_static(&test_program(&[1, 1, 6])));
        assert!(!is_static(&test_program(&[6, 3, 1])));
    }

    #[test]
    fn truncated_or_other_files_are_not_static() {
        let whole = test_program(&[1, 1]);
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&whole[..100]));
        assert!(!is_static(&[]));
    }

    #[test]
    fn test_program_has_a_loader() {
        let path = std::env::current_exe().expect("it has a path");
        assert!(!is_static(&std::fs::read(path).expect("it is readable")));
    }
}
