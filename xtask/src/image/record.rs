//! `cargo xtask image record`: records which functions of a program run during its benchmark.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::function_order::{map_functions, without_hash};
use super::image_kind::ImageKind;
use super::link_order_files::LinkOrderFiles;
use super::{build_release, file_error};
use crate::conformance;
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The program of an image whose functions are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RecordedImage {
    #[value(name = "lanyard-node")]
    Node,
    #[value(name = "lanyard-azure")]
    Azure,
}

impl RecordedImage {
    const fn image_kind(self) -> ImageKind {
        match self {
            Self::Node => ImageKind::Node,
            Self::Azure => ImageKind::Azure,
        }
    }

    /// The command and the benchmark, for the header of the list.
    const fn benchmark_names(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => ("lanyard node", "cargo xtask bench node"),
            Self::Azure => ("lanyard azure serve", "cargo xtask bench azure"),
        }
    }

    /// The benchmark with `recorder` in place of the program, which it starts once.
    fn benchmark_command(
        self,
        repository: &Repository,
        recorder: &Path,
    ) -> Result<Command, TaskError> {
        match self {
            Self::Node => conformance::node_benchmark_command(repository, recorder),
            Self::Azure => {
                let mut command =
                    conformance::azure_benchmark_command(repository, recorder, false)?;
                command.args(["--objects", "200", "measure_azure::key_vault"]);
                Ok(command)
            }
        }
    }

    fn list_header(self) -> String {
        let (command, benchmark) = self.benchmark_names();
        let image = self.image_kind().name();
        format!(
            "\
# Functions that ran in `{command}` during `{benchmark}`, in the order of their first calls:
# mangled names without their hash. `cargo xtask image build --release {image}` places them first.
# `cargo xtask image record {image}` writes this file.
"
        )
    }
}

/// Runs the benchmark of a program with a recorder in its place, and writes the list of functions that ran.
pub(super) fn record_functions(
    repository: &Repository,
    image: RecordedImage,
) -> Result<(), TaskError> {
    let Some(layout) = LinkOrderFiles::of(repository, image.image_kind()) else {
        return Err(TaskError::Findings {
            check: "architectures on which functions cannot be recorded (x86_64 only)",
            findings: vec![std::env::consts::ARCH.to_owned()],
        });
    };
    let program = build_release(repository, image.image_kind())?.root.join("lanyard");
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

    let mut command = image.benchmark_command(repository, &recorder)?;
    command.env("RECORD_PROGRAM", &program).env("RECORD_ADDRESSES", &addresses);
    command.env("RECORD_OUTPUT", &output);
    command.arg("--measurements").arg(directory.join("measurements.json"));
    process::run(&mut command)?;

    let ran = fs::read_to_string(&output).map_err(file_error("read", &output))?;
    let mut list = image.list_header();
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
