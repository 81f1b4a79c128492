//! Cycles of imports between the files of a crate.
//!
//! An edge leads from a file to another file of the crate whose item it mentions, through re-exports. Edges
//! between a module and its direct child are not counted.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use super::module_tree::{ModulePath, ModuleTree};

/// The names of the items that one file uses of another.
pub(super) type ImportEdges = BTreeMap<(ModulePath, ModulePath), BTreeSet<String>>;

/// Files that directly or indirectly import each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ImportCycle {
    pub(super) files: BTreeSet<ModulePath>,
    /// The edges between these files.
    pub(super) edges: ImportEdges,
}

/// The maximum number of re-exports between a path and its item.
const MAX_REEXPORTS: usize = 8;

impl ModuleTree {
    /// Finds the cycles of the files, in the order of their first file.
    pub(super) fn cycles(&self) -> Vec<ImportCycle> {
        let edges = self.edges();
        let graph: DiGraphMap<&ModulePath, ()> =
            edges.keys().map(|(from, to)| (from, to)).collect();
        let mut cycles: Vec<ImportCycle> = tarjan_scc(&graph)
            .into_iter()
            .filter(|files| files.len() > 1)
            .map(|files| {
                let files: BTreeSet<_> = files.into_iter().cloned().collect();
                let inner = edges
                    .iter()
                    .filter(|((from, to), _)| files.contains(from) && files.contains(to));
                let edges = inner.map(|(ends, names)| (ends.clone(), names.clone())).collect();
                ImportCycle { files, edges }
            })
            .collect();
        cycles.sort_by(|one, other| one.files.cmp(&other.files));
        cycles
    }

    fn edges(&self) -> ImportEdges {
        let mut edges = ImportEdges::new();
        for (path, module) in &self.modules {
            for mentioned in &module.paths {
                let Some((declaring, name)) = self.resolve(path, mentioned, MAX_REEXPORTS) else {
                    continue;
                };
                let file = &self.modules[&declaring].file;
                if *file != module.file && !are_parent_and_child(file, &module.file) {
                    let files = (module.file.clone(), file.clone());
                    edges.entry(files).or_default().insert(name);
                }
            }
        }
        edges
    }

    /// The module that declares the item of a path, and the name of the item. `None` for modules and for items
    /// of other crates.
    fn resolve(
        &self,
        from: &ModulePath,
        path: &[String],
        reexports: usize,
    ) -> Option<(ModulePath, String)> {
        let mut module = from.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|it| it == "super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
            }
            first if self.modules.contains_key(&child(from, first)) => {}
            first => {
                let import = self.modules[from].imports.get(first)?;
                let path = [import, &rest[1..]].concat();
                return self.resolve(from, &path, reexports.checked_sub(1)?);
            }
        }
        while let Some((name, after)) = rest.split_first() {
            let inner = child(&module, name);
            let is_item = after.is_empty() && self.modules[&module].items.contains(name);
            if is_item || !self.modules.contains_key(&inner) {
                return self.resolve_name(module, rest, reexports);
            }
            (module, rest) = (inner, after);
        }
        None
    }

    /// Resolves a path whose first segment is no module.
    fn resolve_name(
        &self,
        module: ModulePath,
        path: &[String],
        reexports: usize,
    ) -> Option<(ModulePath, String)> {
        let names = &self.modules[&module];
        let name = &path[0];
        if names.items.contains(name) {
            return Some((module, name.clone()));
        }
        if let Some(import) = names.imports.get(name) {
            let path = [import, &path[1..]].concat();
            return self.resolve(&module, &path, reexports.checked_sub(1)?);
        }
        for glob in &names.globs {
            let path = [glob, path].concat();
            let found = self.resolve(&module, &path, reexports.checked_sub(1)?);
            let declares =
                |(module, name): &(ModulePath, String)| self.modules[module].items.contains(name);
            if found.as_ref().is_some_and(declares) {
                return found;
            }
        }
        // An item that a macro declares.
        Some((module, name.clone()))
    }
}

fn child(module: &ModulePath, name: &str) -> ModulePath {
    [module.as_slice(), &[name.to_owned()]].concat()
}

fn are_parent_and_child(one: &ModulePath, other: &ModulePath) -> bool {
    let is_child = |child: &ModulePath, parent: &ModulePath| {
        child.split_last().is_some_and(|(_, above)| above == parent)
    };
    is_child(one, other) || is_child(other, one)
}

/// The file of a module, relative to the directory of the crate root.
pub(super) fn file_name(module: &ModulePath) -> String {
    if module.is_empty() { "the crate root".to_owned() } else { format!("{}.rs", module.join("/")) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The modules of a crate with the given files.
    fn test_tree(files: &[(&str, &str)]) -> ModuleTree {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            Ok(found.unwrap_or_else(|| panic!("no {}", path.display())).1.to_owned())
        };
        ModuleTree::read(Path::new("lib.rs"), read).expect("every file is Rust")
    }

    /// The edges as `from -> to: names`.
    fn edges_of(files: &[(&str, &str)]) -> Vec<String> {
        let edges = test_tree(files).edges();
        let text = edges.iter().map(|((from, to), names)| {
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            format!("{} -> {}: {names}", from.join("::"), to.join("::"))
        });
        text.collect()
    }

    #[test]
    fn ways_to_mention_an_item_of_another_file() {
        let used = "pub struct Thing; pub enum Kind { One } pub fn make() {} pub mod inner { pub struct Deep; } text!(Made);";
        let cases = [
            ("use crate::used::Thing;", "Thing"),
            ("use super::used::{self, Thing as Other, Kind::*};", "Kind Thing"),
            ("pub use crate::used::make;", "make"),
            ("fn f() { crate::used::make() }", "make"),
            ("fn f() { super::used::make(); }", "make"),
            ("use crate::used; fn f() { used::make() }", "make"),
            ("use crate::used as other; fn f(_: Vec<other::Thing>) {}", "Thing"),
            ("fn f() { use crate::used::Kind; }", "Kind"),
            ("use crate::used::inner::Deep;", "Deep"),
            ("fn f() { println!(\"{}\", crate::used::make()); }", "make"),
            ("#[arg(value_parser = crate::used::make)] struct A;", "make"),
            ("mod inner { use super::super::used::Thing; }", "Thing"),
            ("use crate::used::*;", "*"),
            ("use crate::used::Made;", "Made"),
            ("use crate::Thing;", "Thing"),
            ("use crate::again::Thing;", "Thing"),
        ];
        for (code, names) in cases {
            let files = [
                ("lib.rs", "mod user; mod used; mod again; pub use self::used::Thing;"),
                ("again.rs", "pub use crate::*;"),
                ("used.rs", used),
                ("user.rs", code),
            ];
            let expected = format!("user -> used: {names}");
            assert_eq!(edges_of(&files), [expected], "{code}");
        }
    }

    #[test]
    fn tests_modules_and_other_crates_have_no_edges() {
        let cases = [
            "use crate::used;",
            "use std::fmt; use serde::Thing; fn f() { fmt::write(); Self::used(); ::used::make(); }",
            "#[cfg(test)] use crate::used::Thing;",
            "#[cfg(test)] mod tests { use crate::used::Thing; }",
            "#[cfg(any(test, feature = \"test-util\"))] mod fixture;",
            "#[cfg(test)] mod fixture;",
            "struct A; impl A { #[cfg(test)] fn f() { crate::used::make() } }",
            "use crate::user::Own; struct Own;",
        ];
        for code in cases {
            let files = [
                ("lib.rs", "mod user; mod used;"),
                ("used.rs", "pub struct Thing; pub fn make() {}"),
                ("user.rs", code),
            ];
            assert_eq!(edges_of(&files), Vec::<String>::new(), "{code}");
        }
    }

    #[test]
    fn edges_between_a_module_and_its_direct_child_do_not_count() {
        let files = |user: &'static str| {
            [
                ("lib.rs", "mod a; struct Root;"),
                ("a.rs", "mod b; pub use self::b::B; struct A;"),
                ("a/b.rs", user),
            ]
        };
        let none = Vec::<String>::new();
        assert_eq!(edges_of(&files("use super::A; pub struct B;")), none);
        assert_eq!(edges_of(&files("use crate::Root;")), ["a::b -> : Root"]);
    }

    #[test]
    fn reexports_in_a_loop_resolve_to_nothing() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::X; use crate::b::*;"),
            ("b.rs", "pub use crate::a::X; use crate::a::*;"),
        ];
        assert_eq!(edges_of(&files), ["a -> b: *", "b -> a: *"]);
    }

    #[test]
    fn cycles_contain_only_the_files_that_reach_each_other() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::a::A; use crate::d::D; pub struct C;"),
            ("d.rs", "pub struct D;"),
            ("e.rs", "use crate::a::A;"),
        ];
        let cycles = test_tree(&files).cycles();
        let [cycle] = cycles.as_slice() else { panic!("{cycles:?}") };
        assert_eq!(cycle.files.iter().map(file_name).collect::<Vec<_>>(), ["a.rs", "b.rs", "c.rs"]);
        assert_eq!(cycle.edges.len(), 3);
    }
}
