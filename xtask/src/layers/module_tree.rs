//! The modules of a library or program: the names that each declares, and the paths that its code mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemMod, ItemUse, Macro, Meta, MetaList, UseTree};

use crate::product_lines::product_lines;
use crate::task_error::TaskError;

/// The names of a module and of its parents below the crate root, whose own path is empty.
pub(super) type ModulePath = Vec<String>;

/// The product modules of one library or program, without test modules.
#[derive(Debug, Default)]
pub(super) struct ModuleTree {
    pub(super) modules: BTreeMap<ModulePath, Module>,
    /// The number of product lines of each file, by the module that the file contains.
    pub(super) files: BTreeMap<ModulePath, usize>,
}

/// A module: that of a file, or an inline module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The module whose file contains this module.
    pub(super) file: ModulePath,
    pub(super) items: BTreeSet<String>,
    /// The paths of `use` declarations, by the name that each brings into scope.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// The modules and enums whose names are all in scope.
    pub(super) globs: Vec<Vec<String>>,
    /// All mentioned paths of at least two segments; that of a glob ends with `*`.
    pub(super) paths: BTreeSet<Vec<String>>,
}

impl ModuleTree {
    /// Reads the modules below the file of the crate root. `read` returns the text of a file.
    pub(super) fn read(
        root: &Path,
        read: impl Fn(&Path) -> Result<String, TaskError>,
    ) -> Result<Self, TaskError> {
        let directory = root.parent().unwrap_or(Path::new(""));
        let mut tree = Self::default();
        let mut unread = vec![(ModulePath::new(), root.to_path_buf())];
        while let Some((module, path)) = unread.pop() {
            let text = read(&path)?;
            let syntax = syn::parse_file(&text).map_err(|error| TaskError::Findings {
                check: "files that are not Rust",
                findings: vec![format!("{}: {error}", path.display())],
            })?;
            if is_for_tests(&syntax.attrs) {
                continue;
            }
            tree.files.insert(module.clone(), product_lines(&text));
            let mut visitor = FileVisitor {
                modules: &mut tree.modules,
                file: module.clone(),
                module,
                child_files: Vec::new(),
            };
            visitor.module_mut();
            visitor.visit_file(&syntax);
            unread.extend(visitor.child_files.into_iter().map(|child| {
                let file = child.iter().collect::<PathBuf>().with_extension("rs");
                (child, directory.join(file))
            }));
        }
        Ok(tree)
    }
}

/// Collects the names and paths of one file.
struct FileVisitor<'a> {
    modules: &'a mut BTreeMap<ModulePath, Module>,
    file: ModulePath,
    /// The module of the visited item.
    module: ModulePath,
    /// The declared modules that are files of their own.
    child_files: Vec<ModulePath>,
}

impl FileVisitor<'_> {
    fn module_mut(&mut self) -> &mut Module {
        let file = &self.file;
        self.modules
            .entry(self.module.clone())
            .or_insert_with(|| Module { file: file.clone(), ..Module::default() })
    }

    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.module_mut().paths.insert(path);
        }
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &Ident| [prefix, &[name.to_string()]].concat();
        let (name, path) = match tree {
            UseTree::Path(part) => return self.add_use(&part.tree, &with(&part.ident)),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.add_use(item, prefix);
                }
                return;
            }
            UseTree::Glob(_) => {
                self.module_mut().globs.push(prefix.to_vec());
                return self.add_path([prefix, &["*".to_owned()]].concat());
            }
            UseTree::Name(part) if part.ident == "self" => {
                (prefix.last().cloned().unwrap_or_default(), prefix.to_vec())
            }
            UseTree::Name(part) => (part.ident.to_string(), with(&part.ident)),
            UseTree::Rename(part) if part.ident == "self" => {
                (part.rename.to_string(), prefix.to_vec())
            }
            UseTree::Rename(part) => (part.rename.to_string(), with(&part.ident)),
        };
        self.module_mut().imports.insert(name, path.clone());
        self.add_path(path);
    }

    /// Adds the paths in the tokens of a macro or an attribute.
    fn add_token_paths(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add_path(mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.add_path(mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_token_paths(group.stream());
                    }
                }
            }
        }
        self.add_path(path);
    }
}

impl<'ast> Visit<'ast> for FileVisitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (name, attributes) = name_and_attributes(item);
        if !is_for_tests(attributes) {
            self.module_mut().items.extend(name.map(ToString::to_string));
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident == "tests" {
            return;
        }
        let module = [self.module.as_slice(), &[item.ident.to_string()]].concat();
        let Some((_, items)) = &item.content else { return self.child_files.push(module) };
        let parent = mem::replace(&mut self.module, module);
        self.module_mut();
        for item in items {
            self.visit_item(item);
        }
        self.module = parent;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.add_use(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.add_path(path.segments.iter().map(|it| it.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.add_token_paths(call.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.add_token_paths(list.tokens.clone());
    }
}

/// The name of an item other than a module, and its attributes.
fn name_and_attributes(item: &Item) -> (Option<&Ident>, &[Attribute]) {
    match item {
        Item::Const(item) => (Some(&item.ident), &item.attrs),
        Item::Enum(item) => (Some(&item.ident), &item.attrs),
        Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
        Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
        Item::Static(item) => (Some(&item.ident), &item.attrs),
        Item::Struct(item) => (Some(&item.ident), &item.attrs),
        Item::Trait(item) => (Some(&item.ident), &item.attrs),
        Item::Type(item) => (Some(&item.ident), &item.attrs),
        Item::Union(item) => (Some(&item.ident), &item.attrs),
        Item::Impl(item) => (None, &item.attrs),
        Item::Mod(item) => (None, &item.attrs),
        Item::Use(item) => (None, &item.attrs),
        _ => (None, &[]),
    }
}

/// Whether a `cfg` attribute such as `#[cfg(test)]` or `#[cfg(any(test, …))]` selects the code for tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let names = identifiers(list.tokens.clone());
            names.iter().any(|it| it == "test") && !names.iter().any(|it| it == "not")
        }
        _ => false,
    })
}

fn identifiers(tokens: TokenStream) -> Vec<Ident> {
    let names = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Ident(name) => vec![name],
        TokenTree::Group(group) => identifiers(group.stream()),
        _ => Vec::new(),
    });
    names.collect()
}
