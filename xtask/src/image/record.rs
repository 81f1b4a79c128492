//! `cargo xtask image record`: records which functions of the node plugin run during its benchmark.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::function_order::{map_functions, without_hash};
use super::image_kind::ImageKind;
use super::link_order_files::LinkOrderFiles;
use super::{build_release, file_error};
use crate::conformance;
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

const LIST_HEADER: &str = "\
# Functions that ran in `lanyard node` during `cargo xtask bench node`, in the order of their first calls:
# mangled names without their hash. `cargo xtask image build --release lanyard-node` places them first.
# `cargo xtask image record` writes this file.
";

/// Runs the benchmark of the node plugin with a recorder in place of the program, and writes the list of
/// functions that ran.
pub(super) fn record_functions(repository: &Repository) -> Result<(), TaskError> {
    let Some(layout) = LinkOrderFiles::of(repository, ImageKind::Node) else {
        return Err(TaskError::Findings {
            check: "architectures on which functions cannot be recorded (x86_64 only)",
            findings: vec![std::env::consts::ARCH.to_owned()],
        });
    };
    let program = build_release(repository, ImageKind::Node)?.root.join("lanyard");
    let directory = repository.target_directory().join("image").join("record");
    fs::create_dir_all(&directory).map_err(file_error("make", &directory))?;
    let map =
        fs::read_to_string(&layout.linker_map).map_err(file_error("read", &layout.linker_map))?;
    let functions: BTreeMap<&str, &str> = map_functions(&map).collect();

    let recorder = directory.join("recorder");
    let source = repository.root().join("xtask").join("record").join("functions.c");
    let mut compiler = Command::new("cc");
    process::run(compiler.args(["-O1", "-Wall", "-o"]).arg(&recorder).arg(source))?;
    let (addresses, output) = (directory.join("addresses"), directory.join("ran"));
    let lines: Vec<&str> = functions.keys().copied().collect();
    fs::write(&addresses, lines.join("\n")).map_err(file_error("write", &addresses))?;

    let mut command = conformance::node_benchmark_command(repository, &recorder)?;
    command.env("RECORD_PROGRAM", &program).env("RECORD_ADDRESSES", &addresses);
    command.env("RECORD_OUTPUT", &output);
    command.arg("--measurements").arg(directory.join("measurements.json"));
    process::run(&mut command)?;

    let ran = fs::read_to_string(&output).map_err(file_error("read", &output))?;
    let mut list = LIST_HEADER.to_owned();
    let mut listed = std::collections::BTreeSet::new();
    for name in ran.lines().filter_map(|at| functions.get(at)).map(|it| without_hash(it)) {
        if listed.insert(name) {
            list.push_str(name);
            list.push('\n');
        }
    }
    process::print_line(&format!("{} functions ran", listed.len()));
    fs::write(&layout.function_list, list).map_err(file_error("write", &layout.function_list))
}
