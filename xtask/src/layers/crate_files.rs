//! The product files of a crate: their cycles and their size.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use super::graph::WorkspaceCrate;
use super::import_cycles::{ImportCycle, file_name};
use super::module_tree::ModuleTree;
use crate::task_error::TaskError;

/// What the checks need to know about the files of a crate.
#[derive(Debug, Default)]
pub(super) struct CrateFiles {
    pub(super) name: String,
    /// The number of files.
    pub(super) count: usize,
    /// The number of product lines.
    pub(super) lines: usize,
    cycles: Vec<ImportCycle>,
}

impl CrateFiles {
    /// Reads the files of a crate's library and programs.
    pub(super) fn read(member: &WorkspaceCrate) -> Result<Self, TaskError> {
        let mut found = Self { name: member.name.clone(), ..Self::default() };
        for root in &member.roots {
            found.add(&ModuleTree::read(root, read_file)?);
        }
        Ok(found)
    }

    fn add(&mut self, tree: &ModuleTree) {
        self.count += tree.files.len();
        self.lines += tree.files.values().sum::<usize>();
        self.cycles.extend(tree.cycles());
    }

    /// Compares the number of files in cycles with the known number.
    pub(super) fn cycle_findings(&self, known: usize) -> Vec<String> {
        let name = &self.name;
        let count: usize = self.cycles.iter().map(|cycle| cycle.files.len()).sum();
        match count.cmp(&known) {
            Ordering::Equal => Vec::new(),
            Ordering::Less => vec![format!(
                "{name} has {count} files in cycles; lower the figure in the table from {known}"
            )],
            Ordering::Greater => self.cycles.iter().map(|cycle| cycle_text(name, cycle)).collect(),
        }
    }

    /// Compares the number of product lines with its maximum.
    pub(super) fn size_finding(&self, ceiling: usize) -> Option<String> {
        let Self { name, lines, .. } = self;
        (*lines > ceiling)
            .then(|| format!("{name} has {lines} product lines; its ceiling is {ceiling}"))
    }
}

/// The crate, the number of files and each import, with the names of its items.
fn cycle_text(name: &str, cycle: &ImportCycle) -> String {
    let mut text = format!("{name}: {} files import each other in a cycle", cycle.files.len());
    for ((from, to), names) in &cycle.edges {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let edge = format!("\n    {} -> {}: {names}", file_name(from), file_name(to));
        text.push_str(&edge);
    }
    text
}

fn read_file(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(|source| TaskError::File {
        action: "read",
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of two files in a cycle, with three product lines.
    fn test_crate() -> CrateFiles {
        let read = |path: &Path| {
            Ok(match path.to_str() {
                Some("src/main.rs") => "mod a; mod b;\n",
                Some("src/a.rs") => "use crate::b::{B, b}; pub struct A;\n",
                _ => "use crate::a::A; pub struct B; pub fn b() {}\n#[cfg(test)]\nmod tests {\n}\n",
            }
            .to_owned())
        };
        let tree = ModuleTree::read(Path::new("src/main.rs"), read).expect("every file is Rust");
        let mut found = CrateFiles { name: "example".to_owned(), ..CrateFiles::default() };
        found.add(&tree);
        found
    }

    #[test]
    fn files_in_cycles_must_equal_the_known_number() {
        let more = "example: 2 files import each other in a cycle\n    a.rs -> b.rs: B, b\n    b.rs -> a.rs: A";
        let fewer = "example has 2 files in cycles; lower the figure in the table from 3";
        for (known, expected) in [(0, vec![more]), (1, vec![more]), (2, vec![]), (3, vec![fewer])] {
            assert_eq!(test_crate().cycle_findings(known), expected, "{known}");
        }
    }

    #[test]
    fn product_lines_must_not_exceed_the_ceiling() {
        assert_eq!(test_crate().lines, 3);
        assert_eq!(test_crate().size_finding(3), None);
        let finding = "example has 3 product lines; its ceiling is 2";
        assert_eq!(test_crate().size_finding(2).as_deref(), Some(finding));
    }
}
