//! The files that carry the order of functions to the linker and back.

use std::fs;
use std::path::{Path, PathBuf};

use super::file_error;
use super::function_order::FunctionOrder;
use super::image_kind::ImageKind;
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The files of one program.
#[derive(Debug)]
pub(super) struct LinkOrderFiles {
    /// The functions that were seen running, in the repository.
    pub(super) function_list: PathBuf,
    /// What the linker says of the program.
    pub(super) linker_map: PathBuf,
    /// The order that the linker reads.
    order: PathBuf,
    /// The order that the program on disk was linked in.
    linked_order: PathBuf,
}

impl LinkOrderFiles {
    /// The layout of the program of an image that has one. Only lld takes it, which is Rust's linker on
    /// this architecture alone.
    pub(super) fn of(house: &Repository, product: ImageKind) -> Option<Self> {
        let directory = house.target_directory().join("image").join("target");
        (product == ImageKind::Node && cfg!(target_arch = "x86_64")).then(|| Self {
            function_list: house.root().join("lanyard").join("functions-of-node.txt"),
            linker_map: directory.join("lanyard-node.map"),
            order: directory.join("lanyard-node.order"),
            linked_order: directory.join("lanyard-node.linked"),
        })
    }

    /// Arguments for rustc. They are the same for every order: others would change the names of functions.
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

    /// Makes an order that says nothing where there is none yet.
    pub(super) fn create_empty_order(&self) -> Result<(), TaskError> {
        if self.order.exists() {
            return Ok(());
        }
        let directory = self.order.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(file_error("make", directory))?;
        fs::write(&self.order, "").map_err(file_error("write", &self.order))
    }

    /// Writes the order of the functions that the program has. Returns whether the program has to be linked
    /// again, because it was linked in another order.
    ///
    /// # Errors
    ///
    /// [`TaskError::FindingList`] if the program has less than half of the listed functions: the list is too old,
    /// or the compiler writes names in another form.
    pub(super) fn update_order(&self) -> Result<bool, TaskError> {
        let read = |path: &Path| fs::read_to_string(path).map_err(file_error("read", path));
        let order = FunctionOrder::new(&read(&self.function_list)?, &read(&self.linker_map)?);
        let FunctionOrder { found, listed, .. } = order;
        let summary = format!("{found} of {listed} functions are placed first");
        if found * 2 < listed {
            return Err(TaskError::Findings {
                check: "listed functions missing from the program; remove the lines of \
                        `lanyard/functions-of-node.txt`, then run `cargo xtask image record`",
                findings: vec![summary],
            });
        }
        process::print_line(&summary);
        fs::write(&self.order, &order.text).map_err(file_error("write", &self.order))?;
        // Absent or incomplete after a link that did not end: then it is linked again.
        let linked = fs::read_to_string(&self.linked_order).unwrap_or_default();
        Ok(linked != order.text)
    }

    /// Records that the program was linked in the order of [`LinkOrderFiles::update_order`].
    pub(super) fn record_linked_order(&self) -> Result<(), TaskError> {
        fs::copy(&self.order, &self.linked_order).map(drop).map_err(file_error("copy", &self.order))
    }
}
