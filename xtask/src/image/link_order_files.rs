//! The files that pass the order of functions to the linker, and the linker's map back.

use std::fs;
use std::path::{Path, PathBuf};

use super::file_error;
use super::function_order::FunctionOrder;
use super::image_kind::ImageKind;
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The link order files of one program.
#[derive(Debug)]
pub(super) struct LinkOrderFiles {
    /// The list of functions that ran, in the repository.
    pub(super) function_list: PathBuf,
    /// The linker's map of the program.
    pub(super) linker_map: PathBuf,
    /// The order file for the linker.
    order: PathBuf,
    /// The order with which the program on disk was linked.
    linked_order: PathBuf,
}

impl LinkOrderFiles {
    /// The link order files of an image's program, if it has any. They need lld, which is Rust's default
    /// linker only on this architecture.
    pub(super) fn of(repository: &Repository, image_kind: ImageKind) -> Option<Self> {
        let list = match image_kind {
            ImageKind::Node => "functions-of-node.txt",
            ImageKind::Azure => "functions-of-azure.txt",
            ImageKind::Lanyard => return None,
        };
        let directory = repository.target_directory().join("image").join("target");
        let file = |extension| directory.join(image_kind.name()).with_extension(extension);
        cfg!(target_arch = "x86_64").then(|| Self {
            function_list: repository.root().join("lanyard").join(list),
            linker_map: file("map"),
            order: file("order"),
            linked_order: file("linked"),
        })
    }

    /// The linker arguments for rustc. They do not depend on the order, because other arguments would change
    /// the hashes in function names.
    pub(super) fn linker_arguments(&self) -> Vec<String> {
        let link = |argument: String| ["-C".to_owned(), format!("link-arg=-Wl,{argument}")];
        [
            link(format!("-Map={}", self.linker_map.display())),
            link("--no-demangle".to_owned()),
            link(format!("--symbol-ordering-file={}", self.order.display())),
            link("--no-warn-symbol-ordering".to_owned()),
        ]
        .concat()
    }

    /// Creates an empty order if there is none.
    pub(super) fn create_empty_order(&self) -> Result<(), TaskError> {
        if self.order.exists() {
            return Ok(());
        }
        let directory = self.order.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(file_error("make", directory))?;
        fs::write(&self.order, "").map_err(file_error("write", &self.order))
    }

    /// Writes the order of the functions that the program contains. Returns whether the program must be
    /// linked again, because it was linked with another order.
    ///
    /// # Errors
    ///
    /// [`TaskError::Findings`] if the program contains less than half of the listed functions: the list is
    /// too old, or the compiler uses another mangling.
    pub(super) fn update_order(&self) -> Result<bool, TaskError> {
        let read = |path: &Path| fs::read_to_string(path).map_err(file_error("read", path));
        let order = FunctionOrder::new(&read(&self.function_list)?, &read(&self.linker_map)?);
        let FunctionOrder { found, listed, .. } = order;
        let summary = format!("{found} of {listed} functions are placed first");
        if found * 2 < listed {
            return Err(TaskError::Findings {
                check: "listed functions missing from the program; remove the lines of this file, then \
                        run `cargo xtask image record` with the name of the image",
                findings: vec![format!("{}: {summary}", self.function_list.display())],
            });
        }
        process::print_line(&summary);
        fs::write(&self.order, &order.text).map_err(file_error("write", &self.order))?;
        // Absent or incomplete after an interrupted link, in which case the program is linked again.
        let linked = fs::read_to_string(&self.linked_order).unwrap_or_default();
        Ok(linked != order.text)
    }

    /// Records that the program was linked with the order of [`LinkOrderFiles::update_order`].
    pub(super) fn record_linked_order(&self) -> Result<(), TaskError> {
        fs::copy(&self.order, &self.linked_order).map(drop).map_err(file_error("copy", &self.order))
    }
}
