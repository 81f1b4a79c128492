//! `cargo xtask image`: the container images, from our own program and without a base.
//!
//! No tool for containers is needed: the binary is linked statically, everything else that a
//! TLS client and a resolver read is put beside it, and the archive is written here. For those
//! who build with buildah or docker the same files are staged for the `Containerfile`.

pub(crate) mod archive;
pub(crate) mod base_files;
mod elf;
mod function_order;
mod image_kind;
mod link_order_files;
mod public_roots;
mod record;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use self::archive::{ContainerImage, ImageEntry};
pub(crate) use self::image_kind::ImageKind;
use self::link_order_files::LinkOrderFiles;
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
    /// Build images, and try each in an empty root with a network of its own
    Try {
        /// The image [default: each]
        image: Option<ImageKind>,
    },
    /// Record which functions of the node plugin run, for the layout of its program
    Record,
    /// Put programs that are there into an image archive
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
    /// Optimize, as for what is pushed to a registry; takes minutes
    #[arg(long)]
    release: bool,
    /// The name with its tag [default: localhost/IMAGE:VERSION]
    #[arg(long, value_name = "REFERENCE", conflicts_with = "all")]
    reference: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PackImageArgs {
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

/// An image on disk.
#[derive(Debug)]
pub(crate) struct BuiltImage {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// The same files as a directory.
    pub(crate) root: PathBuf,
}

/// How the program of an image is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildMode {
    /// As the debug build of the workspace, whose dependencies are reused.
    ForSuites,
    /// As it is shipped: minutes of link-time optimization.
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

pub(crate) fn run(house: &Repository, arguments: &Args) -> Result<(), TaskError> {
    match &arguments.command {
        ImageTaskCommand::Build(build) => build_all(house, build),
        ImageTaskCommand::Try { image } => {
            workspace::build_programs(house)?;
            for product in selected_kinds(*image) {
                test_image(house, product, &build_for_suites(house, product)?)?;
            }
            Ok(())
        }
        ImageTaskCommand::Record => record::record_functions(house),
        ImageTaskCommand::Pack(pack) => self::pack_image(pack),
    }
}

fn selected_kinds(image: Option<ImageKind>) -> Vec<ImageKind> {
    image.map_or_else(|| ImageKind::ALL.into(), |image| vec![image])
}

fn build_all(house: &Repository, arguments: &BuildImageArgs) -> Result<(), TaskError> {
    let quality = if arguments.release { BuildMode::Release } else { BuildMode::ForSuites };
    for product in selected_kinds(arguments.image) {
        let built = build(house, product, quality, arguments.reference.as_deref())?;
        let reference = arguments.reference.clone().unwrap_or_else(|| product.reference());
        process::print_line(&format!("{reference} {}", built.archive.display()));
        process::print_line(&format!("files for the Containerfile: {}", built.root.display()));
    }
    Ok(())
}

/// The image for a conformance suite: as fast to compile as the debug build. It is written again only
/// when its program or this program changed.
pub(crate) fn build_for_suites(
    house: &Repository,
    product: ImageKind,
) -> Result<BuiltImage, TaskError> {
    build(house, product, BuildMode::ForSuites, None)
}

/// The image as it is shipped.
pub(crate) fn build_release(
    house: &Repository,
    product: ImageKind,
) -> Result<BuiltImage, TaskError> {
    build(house, product, BuildMode::Release, None)
}

/// Compiles the program, statically linked, and writes the image.
fn build(
    house: &Repository,
    product: ImageKind,
    quality: BuildMode,
    reference: Option<&str>,
) -> Result<BuiltImage, TaskError> {
    let images = house.target_directory().join("image");
    let directory = images.join(quality.mode_directory()).join(product.name());
    fs::create_dir_all(&directory).map_err(file_error("make", &directory))?;
    // An archive names its image: one with another name must not be taken for the default.
    let suffix = if reference.is_none() { "tar" } else { "renamed.tar" };
    let built =
        BuiltImage { archive: directory.with_extension(suffix), root: directory.join("root") };
    // The programs of all images have one name: until this one's is copied, nobody else compiles.
    let lock = images.join("lock");
    let lock_file = File::create(&lock).map_err(file_error("make", &lock))?;
    lock_file.lock().map_err(file_error("lock", &lock))?;
    let program = match quality {
        BuildMode::ForSuites => compile_for_suites(house, product, &images.join("programs"))?,
        BuildMode::Release => compile_release(house, product, &images.join("target"))?,
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
        reference: reference.map_or_else(|| product.reference(), str::to_owned),
        entrypoint: vec!["/lanyard".to_owned()],
        environment: base_files::image_environment(product),
        entries,
    };
    // Renamed when it is whole: a part of an archive would be newer than its program, too.
    let part = directory.with_extension("part");
    fs::write(&part, image.to_archive()?).map_err(file_error("write", &part))?;
    fs::rename(&part, &built.archive).map_err(file_error("rename", &part))?;
    Ok(built)
}

/// Links the debug build of the workspace statically: only the package `lanyard` is compiled again.
/// The program goes to a directory of its own, beside that of the ordinary debug build.
fn compile_for_suites(
    house: &Repository,
    product: ImageKind,
    programs: &Path,
) -> Result<PathBuf, TaskError> {
    let mut cargo = house.cargo();
    cargo.args(["rustc", "--locked", "--package", "lanyard", "--bin", "lanyard"]);
    cargo.args(["--no-default-features", "--features", product.features_for_suites()]);
    cargo.args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-D", "warnings"]);
    cargo.env("CARGO_BUILD_BUILD_DIR", house.target_directory()).env("CARGO_TARGET_DIR", programs);
    process::run(&mut cargo)?;
    Ok(programs.join("debug").join("lanyard"))
}

fn compile_release(
    house: &Repository,
    product: ImageKind,
    directory: &Path,
) -> Result<PathBuf, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = directory.join(&target).join(product.profile()).join("lanyard");
    let layout = LinkOrderFiles::of(house, product);
    let compile = |arguments: &[String]| {
        let mut cargo = house.cargo();
        cargo.args(["rustc", "--locked", "--profile", product.profile()]);
        cargo.args(["--package", "lanyard", "--bin", "lanyard", "--no-default-features"]);
        cargo.args(["--features", product.features(), "--target", &target, "--target-dir"]);
        cargo.arg(directory).arg("--").args(arguments);
        // Relocations are packed: they are most of what a start reads of the file and nobody ever after.
        let flags =
            "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs -D warnings";
        process::run(cargo.env("RUSTFLAGS", flags))
    };
    let Some(layout) = layout else {
        compile(&[])?;
        return Ok(program);
    };
    // The names of functions are known once the program is linked: if the order changes by them, it is
    // linked once more.
    layout.create_empty_order()?;
    compile(&layout.linker_arguments())?;
    if layout.update_order()? {
        let mut clean = house.cargo();
        clean.args(["clean", "--profile", product.profile(), "--package", "lanyard"]);
        process::run(clean.args(["--target", &target, "--target-dir"]).arg(directory))?;
        compile(&layout.linker_arguments())?;
        layout.record_linked_order()?;
    }
    Ok(program)
}

/// Whether an archive was written after its program, and after this program, which decides what else
/// is in it.
fn is_archive_current(archive: &Path, program: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let this = std::env::current_exe().ok().and_then(|path| time(&path));
    time(archive).is_some_and(|written| {
        [time(program), this].iter().all(|it| it.is_some_and(|changed| changed < written))
    })
}

/// Runs the tests of an image, whose program is built, in a network namespace that ends with it.
fn test_image(
    house: &Repository,
    product: ImageKind,
    built: &BuiltImage,
) -> Result<PassFailCounts, TaskError> {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(house.debug_binaries().join("lanyard-conformance-image"));
    command.arg("--root").arg(&built.root);
    for name in product.commands() {
        command.arg("--command").arg(name);
    }
    for variable in base_files::image_environment(product) {
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

/// The stage of CI: no image holds what it must not, each image can be built, and it works.
pub(crate) fn check(house: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = check_dependencies(house)?;
    for product in ImageKind::ALL {
        tally += test_image(house, product, &build_for_suites(house, product)?)?;
    }
    Ok(tally)
}

/// Which packages and features the program of each image is compiled from.
fn check_dependencies(house: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    let mut findings = Vec::new();
    for product in ImageKind::ALL {
        let mut tree = house.cargo();
        tree.args(["tree", "--locked", "--package", "lanyard", "--no-default-features"]);
        tree.args(["--features", product.features(), "--edges", "normal,build"]);
        tree.args(["--prefix", "none", "--format", "{p} {f}"]);
        let graph = process::capture_stdout(&mut tree)?;
        findings.extend(product.find_forbidden(&String::from_utf8_lossy(&graph)));
        tally += PassFailCounts::ONE_PASSED;
    }
    if findings.is_empty() {
        return Ok(tally);
    }
    Err(TaskError::Findings { check: "what an image must not hold", findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_image_stays_below_its_root() {
        assert_eq!(parse_file("/bin/a=b"), Ok(("bin/a".to_owned(), "b".into())));
        for text in ["a", "=b", "../a=b", "a/../b=c", "a//b=c", "/=b"] {
            assert!(parse_file(text).is_err(), "{text}");
        }
    }
}
