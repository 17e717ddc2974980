//! The reader of USDT probes.

use std::fs::File;

use isotherm_probes::usdt::usdt_probes_of;

use crate::scratch::Scratch;

thread_local! {
    static FILES: Scratch = Scratch::new("program");
}

/// Reads the USDT probes of a program.
///
/// # Panics
/// If the file cannot be opened.
pub fn usdt_notes(data: &[u8]) {
    FILES.with(|files| usdt_probes_of(File::open(files.input(data)).expect("the input can be opened")));
}

/// A program with the probes `a:b` and `c:d`, and one without probes.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![program(&[("a", "b", "-4@%eax"), ("c", "d", "")]), program(&[])]
}

/// An ELF file of x86-64 with one segment, and these probes as notes (provider, name and arguments).
fn program(probes: &[(&str, &str, &str)]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    const NAMES: &[u8] = b"\0.note.stapsdt\0.shstrtab\0";
    let mut notes = Vec::new();
    for (nth, (provider, name, arguments)) in probes.iter().enumerate() {
        let mut contents: Vec<u8> = [0x1000 + nth as u64, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        contents.extend(format!("{provider}\0{name}\0{arguments}\0").bytes());
        notes.extend([8, contents.len() as u32, 3].into_iter().flat_map(u32::to_le_bytes));
        notes.extend(b"stapsdt\0");
        contents.resize(contents.len().next_multiple_of(4), 0);
        notes.extend(contents);
    }
    let (notes_at, names_at) = (HEADER + SEGMENT, HEADER + SEGMENT + notes.len() as u64);
    let sections_at = names_at + NAMES.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // Type and machine; version; entry, program headers, section headers; flags; sizes and numbers of headers.
    file.extend([3, 62].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1u32.to_le_bytes());
    file.extend([0x1000, HEADER, sections_at].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0u32.to_le_bytes());
    file.extend([64, 56, 1, 64, 3, 2].into_iter().flat_map(u16::to_le_bytes));
    // The segment is loaded at 4096.
    file.extend([1, 5].into_iter().flat_map(u32::to_le_bytes));
    file.extend([0, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000].into_iter().flat_map(u64::to_le_bytes));
    file.extend(notes);
    file.extend(NAMES);
    for (name, kind, at, size) in
        [(0, 0, 0, 0), (1, 7, notes_at, names_at - notes_at), (15, 3, names_at, NAMES.len() as u64)]
    {
        file.extend([name, kind].into_iter().flat_map(u32::to_le_bytes));
        file.extend([0, 0, at, size].into_iter().flat_map(u64::to_le_bytes));
        file.extend([0, 0].into_iter().flat_map(u32::to_le_bytes));
        file.extend([4, 0].into_iter().flat_map(u64::to_le_bytes));
    }
    file
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_have_probes() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("program");
        let found = seeds().into_iter().map(|seed| {
            std::fs::write(&path, seed).expect("the directory can be written");
            usdt_probes_of(File::open(&path).expect("the file is there")).len()
        });
        assert_eq!(found.collect::<Vec<_>>(), [2, 0]);
    }
}
