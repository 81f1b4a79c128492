//! `cargo xtask image`: builds the container images from lanyard's program, without a base image.
//!
//! No container tool is needed: the binary is linked statically, the files that a TLS client and a resolver
//! read are added, and this task writes the archive. For builds with buildah or docker, the task stages the
//! same files for the `Containerfile`.

pub(crate) mod archive;
pub(crate) mod base_files;
mod elf;
mod image_kind;
mod public_roots;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use self::archive::{ContainerImage, ImageEntry};
pub(crate) use self::image_kind::ImageKind;
use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ImageTaskCommand,
}

#[derive(Debug, Subcommand)]
enum ImageTaskCommand {
    /// Build images as archives (docker-archive), and stage their files
    Build(BuildImageArgs),
    /// Build images, and test each in an empty root with its own network namespace
    Try {
        /// The image [default: all images]
        image: Option<ImageKind>,
    },
    /// Pack existing programs into an image archive
    Pack(PackImageArgs),
}

#[derive(Debug, clap::Args)]
struct BuildImageArgs {
    /// The image
    #[arg(required_unless_present = "all")]
    image: Option<ImageKind>,
    /// Build every image
    #[arg(long, conflicts_with = "image")]
    all: bool,
    /// Build with optimizations, as for a registry; takes minutes
    #[arg(long)]
    release: bool,
    /// The image name with its tag [default: localhost/IMAGE:VERSION]
    #[arg(long, value_name = "REFERENCE", conflicts_with = "all")]
    reference: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PackImageArgs {
    /// The image name with its tag
    #[arg(long, value_name = "REFERENCE")]
    reference: String,
    /// The program to run, as a path in the image
    #[arg(long, value_name = "PATH")]
    entrypoint: String,
    /// Add the public root certificates and the files that the resolver reads
    #[arg(long)]
    with_roots: bool,
    /// Programs: a path in the image, and its source file
    #[arg(required = true, value_name = "PATH=FILE", value_parser = parse_file)]
    files: Vec<(String, PathBuf)>,
    /// The path of the archive
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// An image on disk.
#[derive(Debug)]
pub(crate) struct BuiltImage {
    pub(crate) archive: PathBuf,
    /// The directory with the same files.
    pub(crate) root: PathBuf,
}

/// How the program of an image is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildMode {
    /// Like the debug build of the workspace, whose dependencies are reused.
    ForSuites,
    /// As released, with link-time optimization, which takes minutes.
    Release,
}

impl BuildMode {
    const fn mode_directory(self) -> &'static str {
        match self {
            Self::ForSuites => "suites",
            Self::Release => "released",
        }
    }
}

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    match &arguments.command {
        ImageTaskCommand::Build(build) => build_all(repository, build),
        ImageTaskCommand::Try { image } => {
            workspace::build_programs(repository)?;
            for image_kind in selected_kinds(*image) {
                test_image(repository, image_kind, &build_for_suites(repository, image_kind)?)?;
            }
            Ok(())
        }
        ImageTaskCommand::Pack(pack) => pack_image(pack),
    }
}

fn selected_kinds(image: Option<ImageKind>) -> Vec<ImageKind> {
    image.map_or_else(|| ImageKind::ALL.into(), |image| vec![image])
}

fn build_all(repository: &Repository, arguments: &BuildImageArgs) -> Result<(), TaskError> {
    let mode = if arguments.release { BuildMode::Release } else { BuildMode::ForSuites };
    for image_kind in selected_kinds(arguments.image) {
        let built = build(repository, image_kind, mode, arguments.reference.as_deref())?;
        let reference = arguments.reference.clone().unwrap_or_else(|| image_kind.reference());
        process::print_line(&format!("{reference} {}", built.archive.display()));
        process::print_line(&format!("files for the Containerfile: {}", built.root.display()));
    }
    Ok(())
}

/// Builds the image for a conformance suite, which compiles as fast as the debug build. The archive is
/// written only if its program or this task changed.
pub(crate) fn build_for_suites(
    repository: &Repository,
    image_kind: ImageKind,
) -> Result<BuiltImage, TaskError> {
    build(repository, image_kind, BuildMode::ForSuites, None)
}

/// Builds the image as released.
pub(crate) fn build_release(
    repository: &Repository,
    image_kind: ImageKind,
) -> Result<BuiltImage, TaskError> {
    build(repository, image_kind, BuildMode::Release, None)
}

/// Compiles the program, statically linked, and writes the image.
fn build(
    repository: &Repository,
    image_kind: ImageKind,
    mode: BuildMode,
    reference: Option<&str>,
) -> Result<BuiltImage, TaskError> {
    let images = repository.target_directory().join("image");
    let directory = images.join(mode.mode_directory()).join(image_kind.name());
    fs::create_dir_all(&directory).map_err(file_error("make", &directory))?;
    // An archive contains the image name, so an archive with another name must not replace the default one.
    let suffix = if reference.is_none() { "tar" } else { "renamed.tar" };
    let built =
        BuiltImage { archive: directory.with_extension(suffix), root: directory.join("root") };
    // The programs of all images have the same path, so only one image is compiled at a time until its
    // program is copied.
    let lock = images.join("lock");
    let lock_file = File::create(&lock).map_err(file_error("make", &lock))?;
    lock_file.lock().map_err(file_error("lock", &lock))?;
    let program = match mode {
        BuildMode::ForSuites => {
            compile_for_suites(repository, image_kind, &images.join("programs"))?
        }
        BuildMode::Release => compile_release(repository, image_kind, &images.join("target"))?,
    };
    if reference.is_none() && is_archive_current(&built.archive, &program) {
        return Ok(built);
    }
    let bytes = fs::read(&program).map_err(file_error("read", &program))?;
    if !elf::is_static(&bytes) {
        return Err(TaskError::Findings {
            check: "programs of the image that need a loader",
            findings: vec![program.display().to_string()],
        });
    }
    let switches = workspace::find_test_switches(&bytes);
    if !switches.is_empty() {
        return Err(TaskError::Findings {
            check: "switches for tests in programs of the image",
            findings: switches.into_iter().map(str::to_owned).collect(),
        });
    }
    let mut entries = base_files::client_base_files();
    entries.push(ImageEntry::program("lanyard", bytes));
    stage_files(&entries, &built.root)?;
    let image = ContainerImage {
        reference: reference.map_or_else(|| image_kind.reference(), str::to_owned),
        entrypoint: vec!["/lanyard".to_owned()],
        environment: base_files::image_environment(image_kind),
        entries,
    };
    // Renamed when it is complete: an incomplete archive would otherwise count as current, because it is
    // newer than its program.
    let part = directory.with_extension("part");
    fs::write(&part, image.to_archive()?).map_err(file_error("write", &part))?;
    fs::rename(&part, &built.archive).map_err(file_error("rename", &part))?;
    Ok(built)
}

/// Links the debug build of the workspace statically, which recompiles only the package `lanyard`. The
/// program has its own directory, next to the normal debug build.
fn compile_for_suites(
    repository: &Repository,
    image_kind: ImageKind,
    programs: &Path,
) -> Result<PathBuf, TaskError> {
    let mut cargo = repository.cargo();
    cargo.args(["rustc", "--locked", "--package", "lanyard", "--bin", "lanyard"]);
    cargo.args(["--no-default-features", "--features", &image_kind.features_for_suites()]);
    cargo.args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-D", "warnings"]);
    cargo
        .env("CARGO_BUILD_BUILD_DIR", repository.target_directory())
        .env("CARGO_TARGET_DIR", programs);
    process::run(&mut cargo)?;
    Ok(programs.join("debug").join("lanyard"))
}

fn compile_release(
    repository: &Repository,
    image_kind: ImageKind,
    directory: &Path,
) -> Result<PathBuf, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = directory.join(&target).join(image_kind.profile()).join("lanyard");
    let mut cargo = repository.cargo();
    cargo.args(["build", "--locked", "--profile", image_kind.profile()]);
    cargo.args(["--package", "lanyard", "--bin", "lanyard", "--no-default-features"]);
    cargo.args(["--features", image_kind.features(), "--target", &target, "--target-dir"]);
    // Packed relocations: a start reads all relocations once, and they are most of the file content that it
    // reads.
    let flags = "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs -D warnings";
    process::run(cargo.arg(directory).env("RUSTFLAGS", flags))?;
    Ok(program)
}

/// Whether an archive is newer than its program and than this task, which determines its other files.
fn is_archive_current(archive: &Path, program: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let this = std::env::current_exe().ok().and_then(|path| time(&path));
    time(archive).is_some_and(|written| {
        [time(program), this].iter().all(|it| it.is_some_and(|changed| changed < written))
    })
}

/// Tests an image, whose program is built, in its own network namespace.
fn test_image(
    repository: &Repository,
    image_kind: ImageKind,
    built: &BuiltImage,
) -> Result<PassFailCounts, TaskError> {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(repository.debug_binaries().join("lanyard-conformance-image"));
    command.arg("--root").arg(&built.root);
    for name in image_kind.commands() {
        command.arg("--command").arg(name);
    }
    for variable in base_files::image_environment(image_kind) {
        command.arg("--environment").arg(variable);
    }
    process::run_counted(&mut command)
}

fn pack_image(pack: &PackImageArgs) -> Result<(), TaskError> {
    let mut entries = if pack.with_roots { base_files::client_base_files() } else { Vec::new() };
    for (path, file) in &pack.files {
        let content = fs::read(file).map_err(file_error("read", file))?;
        entries.push(ImageEntry::program(path, content));
    }
    let image = ContainerImage {
        reference: pack.reference.clone(),
        entrypoint: vec![pack.entrypoint.clone()],
        environment: if pack.with_roots { vec![base_files::roots_variable()] } else { Vec::new() },
        entries,
    };
    fs::write(&pack.output, image.to_archive()?).map_err(file_error("write", &pack.output))?;
    process::print_line(&format!("{} {}", pack.reference, pack.output.display()));
    Ok(())
}

/// Writes the files of an image below a directory, which is emptied first.
fn stage_files(entries: &[ImageEntry], root: &Path) -> Result<(), TaskError> {
    if root.exists() {
        fs::remove_dir_all(root).map_err(file_error("empty", root))?;
    }
    entries.iter().try_for_each(|entry| entry.write_below(root).map_err(file_error("stage", root)))
}

/// Parses `PATH=FILE`. The path is a path in the image, with or without its leading slash.
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

/// The CI stage: checks the dependencies of each image, builds it and tests it.
pub(crate) fn check(repository: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = check_no_forbidden_dependencies(repository)?;
    for image_kind in ImageKind::ALL {
        tally += test_image(repository, image_kind, &build_for_suites(repository, image_kind)?)?;
    }
    Ok(tally)
}

/// Checks that the program of each image contains no forbidden package and no test feature. Forbidden ones are
/// the error [`TaskError::Findings`].
fn check_no_forbidden_dependencies(repository: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    let mut findings = Vec::new();
    for image_kind in ImageKind::ALL {
        let mut tree = repository.cargo();
        tree.args(["tree", "--locked", "--package", "lanyard", "--no-default-features"]);
        tree.args(["--features", image_kind.features(), "--edges", "normal,build"]);
        tree.args(["--prefix", "none", "--format", "{p} {f}"]);
        let graph = process::capture_stdout(&mut tree)?;
        findings.extend(image_kind.find_forbidden(&String::from_utf8_lossy(&graph)));
        tally += PassFailCounts::ONE_PASSED;
    }
    if findings.is_empty() {
        return Ok(tally);
    }
    Err(TaskError::Findings { check: "forbidden packages or features in images", findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_paths_stay_below_the_root() {
        assert_eq!(parse_file("/bin/a=b"), Ok(("bin/a".to_owned(), "b".into())));
        for text in ["a", "=b", "../a=b", "a/../b=c", "a//b=c", "/=b"] {
            assert!(parse_file(text).is_err(), "{text}");
        }
    }
}
