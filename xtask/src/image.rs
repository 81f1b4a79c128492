//! `cargo xtask image`: the container image, from our own binary and without a base.
//!
//! No tool for containers is needed: the binary is linked statically, everything else that a
//! TLS client and a resolver read is put beside it, and the archive is written here. For those
//! who build with buildah or docker the same files are staged for the `Containerfile`.

pub(crate) mod archive;
pub(crate) mod content;
mod elf;
mod roots;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use self::archive::{Entry, Image};
use crate::failure::TaskError;
use crate::house::House;
use crate::process::{self, Tally};
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build the image of lanyard as an archive (docker-archive), and stage its files
    Build {
        /// The name with its tag
        #[arg(long, default_value = LANYARD, value_name = "REFERENCE")]
        reference: String,
    },
    /// Build the image of lanyard, and try it in an empty root with a network of its own
    Try,
    /// Put programs that are there into an image archive
    Pack(Pack),
}

#[derive(Debug, clap::Args)]
struct Pack {
    /// The name with its tag
    #[arg(long, value_name = "REFERENCE")]
    reference: String,
    /// The program that runs, as a path in the image
    #[arg(long, value_name = "PATH")]
    entrypoint: String,
    /// Add the public roots, and what the resolver reads
    #[arg(long)]
    with_roots: bool,
    /// Programs: a path in the image, and the file that goes there
    #[arg(required = true, value_name = "PATH=FILE", value_parser = parse_file)]
    files: Vec<(String, PathBuf)>,
    /// The archive
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// The image of lanyard, where it is not named otherwise.
const LANYARD: &str = concat!("localhost/lanyard:", env!("CARGO_PKG_VERSION"));

/// The image on disk.
#[derive(Debug)]
pub(crate) struct Built {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// The same files as a directory.
    pub(crate) root: PathBuf,
}

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<(), TaskError> {
    match &arguments.verb {
        Verb::Build { reference } => {
            let built = build(house, reference)?;
            process::say(&format!("{reference} {}", built.archive.display()));
            process::say(&format!("files for the Containerfile: {}", built.root.display()));
            Ok(())
        }
        Verb::Try => {
            workspace::build_programs(house)?;
            try_out(house, &build(house, LANYARD)?).map(drop)
        }
        Verb::Pack(pack) => self::pack(pack),
    }
}

/// The image under its own name.
pub(crate) fn build_default(house: &House) -> Result<Built, TaskError> {
    build(house, LANYARD)
}

/// Builds the binary without the emulator, statically linked, and writes the image.
fn build(house: &House, reference: &str) -> Result<Built, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // A directory of its own: other flags would make other builds begin anew.
    let directory = house.target().join("image");
    let mut cargo = house.cargo();
    cargo.args(["build", "--locked", "--profile", "dist", "--package", "lanyard"]);
    cargo.args(["--no-default-features", "--target", &target, "--target-dir"]).arg(&directory);
    // Relocations are packed: they are most of what a start reads of the file and nobody ever after.
    // No other build is without the emulator, so no other one would show what is dead then.
    let flags = "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs -D warnings";
    cargo.env("RUSTFLAGS", flags);
    process::run(&mut cargo)?;

    let program = directory.join(&target).join("dist").join("lanyard");
    let bytes = fs::read(&program).map_err(file_error("read", &program))?;
    if !elf::is_static(&bytes) {
        return Err(TaskError::Findings {
            check: "programs of the image that need a loader",
            findings: vec![program.display().to_string()],
        });
    }
    let switches = workspace::test_switches(&bytes);
    if !switches.is_empty() {
        return Err(TaskError::Findings {
            check: "switches for tests in programs of the image",
            findings: switches.into_iter().map(str::to_owned).collect(),
        });
    }
    let mut entries = content::around_a_client();
    entries.push(Entry::program("lanyard", bytes));
    let root = directory.join("root");
    stage(&entries, &root)?;
    let image = Image {
        reference: reference.to_owned(),
        entrypoint: vec!["/lanyard".to_owned()],
        environment: content::environment(),
        entries,
    };
    let archive = directory.join("lanyard.tar");
    fs::write(&archive, image.archive()?).map_err(file_error("write", &archive))?;
    Ok(Built { archive, root })
}

/// Runs the judge of the image, which is built, in a network namespace that ends with it.
fn try_out(house: &House, built: &Built) -> Result<Tally, TaskError> {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(house.debug_binaries().join("lanyard-conformance-image"));
    command.arg("--root").arg(&built.root);
    for variable in content::environment() {
        command.arg("--environment").arg(variable);
    }
    process::run_counted(&mut command)
}

fn pack(pack: &Pack) -> Result<(), TaskError> {
    let mut entries = if pack.with_roots { content::around_a_client() } else { Vec::new() };
    for (path, file) in &pack.files {
        let content = fs::read(file).map_err(file_error("read", file))?;
        entries.push(Entry::program(path, content));
    }
    let image = Image {
        reference: pack.reference.clone(),
        entrypoint: vec![pack.entrypoint.clone()],
        environment: if pack.with_roots { content::environment() } else { Vec::new() },
        entries,
    };
    fs::write(&pack.output, image.archive()?).map_err(file_error("write", &pack.output))?;
    process::say(&format!("{} {}", pack.reference, pack.output.display()));
    Ok(())
}

/// Writes the files of an image below a directory, which is emptied first.
fn stage(entries: &[Entry], root: &Path) -> Result<(), TaskError> {
    if root.exists() {
        fs::remove_dir_all(root).map_err(file_error("empty", root))?;
    }
    entries.iter().try_for_each(|entry| entry.write_below(root).map_err(file_error("stage", root)))
}

/// `PATH=FILE`; the path is one in the image, with or without its first slash.
fn parse_file(text: &str) -> Result<(String, PathBuf), &'static str> {
    let (path, file) = text.split_once('=').ok_or("write PATH=FILE")?;
    let path = path.trim_start_matches('/');
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    if !path.split('/').all(is_plain) {
        return Err("the path in the image must be plain");
    }
    Ok((path.to_owned(), file.into()))
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> TaskError {
    let path = path.to_path_buf();
    move |source| TaskError::File { action, path, source }
}

/// The stage of CI: the emulator is not in the image, the image can be built, and it works.
pub(crate) fn check(house: &House) -> Result<Tally, TaskError> {
    let mut tree = house.cargo();
    tree.args(["tree", "--locked", "--package", "lanyard", "--no-default-features"]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p} {f}"]);
    let graph = process::capture(&mut tree)?;
    let graph = String::from_utf8_lossy(&graph);
    let mut findings = forbidden_packages(&graph);
    findings.extend(workspace::test_features(&graph));
    if !findings.is_empty() {
        return Err(TaskError::Findings {
            check: "packages and features that the image must not hold",
            findings,
        });
    }
    let mut tally = Tally::ONE;
    tally += try_out(house, &build(house, LANYARD)?)?;
    Ok(tally)
}

/// Packages that exist for the local Azure only.
const LOCAL_ONLY: [&str; 2] = ["lanyard-emulator", "lanyard-up"];

fn forbidden_packages(tree: &str) -> Vec<String> {
    let mut found: Vec<String> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|package| LOCAL_ONLY.contains(package))
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_is_found_in_a_tree() {
        let tree =
            "lanyard v0.1.0 (/src/lanyard)\nlanyard-api v0.1.0\nlanyard-emulator v0.1.0 (*)\n";
        assert_eq!(forbidden_packages(tree), ["lanyard-emulator"]);
    }

    #[test]
    fn names_that_only_begin_alike_are_not_found() {
        assert!(forbidden_packages("lanyard-upgrade v1.0.0\nlanyard v0.1.0\n").is_empty());
    }

    #[test]
    fn a_file_of_the_image_stays_below_its_root() {
        assert_eq!(parse_file("/bin/a=b"), Ok(("bin/a".to_owned(), "b".into())));
        for text in ["a", "=b", "../a=b", "a/../b=c", "a//b=c", "/=b"] {
            assert!(parse_file(text).is_err(), "{text}");
        }
    }
}
