//! Unpacks programs from Debian packages into the cache, without installing them on the machine or starting
//! services.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::InstalledTool;
use super::cache::{
    ToolFingerprint, create_symlink, file_error, install_atomically, make_directory,
    remove_directory,
};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The programs that a node needs to run containers.
const CONTAINER_PROGRAMS: [&str; 4] = ["containerd", "containerd-shim-runc-v2", "ctr", "runc"];
const CONTAINER_PACKAGES: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];
/// The directory of the network plugins in Debian's package.
const NETWORK_PLUGINS: &str = "usr/lib/cni";

/// Installs containerd, runc and the network plugins: links to the machine's programs if it has all of them.
pub(super) fn install_containers(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let of_machine: Option<Vec<PathBuf>> =
        CONTAINER_PROGRAMS.iter().map(|name| repository.find_program(name)).collect();
    let plugins = Path::new("/").join(NETWORK_PLUGINS);
    let place = if let (Some(programs), true) = (of_machine, plugins.join("ptp").is_file()) {
        // The directory name depends on the programs' paths, so that links do not dangle if the programs
        // move.
        let place = repository
            .tool_directory("containers", &format!("of-machine-{}", paths_fingerprint(&programs)));
        install_atomically(&place, |half| {
            for (name, program) in CONTAINER_PROGRAMS.iter().zip(&programs) {
                create_symlink(program, &half.join(name))?;
            }
            create_symlink(&plugins, &half.join("cni"))
        })?;
        place
    } else {
        let place = repository.tool_directory("containers", &machine_release()?);
        install_atomically(&place, |half| {
            let root = half.join("root");
            download_and_unpack(&CONTAINER_PACKAGES, half, &root)?;
            for name in CONTAINER_PROGRAMS {
                let inside = ["usr/bin", "usr/sbin"]
                    .map(|directory| Path::new("root").join(directory).join(name))
                    .into_iter()
                    .find(|path| half.join(path).is_file())
                    .ok_or_else(|| missing_program_error(name))?;
                create_symlink(&inside, &half.join(name))?;
            }
            create_symlink(&Path::new("root").join(NETWORK_PLUGINS), &half.join("cni"))?;
            // Fails if runc's only shared library is missing.
            process::capture_stdout(Command::new(half.join("runc")).arg("--version")).map(drop)
        })?;
        place
    };
    let version = process::capture_stdout(Command::new(place.join("containerd")).arg("--version"))?;
    Ok(InstalledTool { version: version_word(&String::from_utf8_lossy(&version)), path: place })
}

/// A fingerprint of the programs' paths.
fn paths_fingerprint(programs: &[PathBuf]) -> String {
    let absorb =
        |hash: ToolFingerprint, path: &PathBuf| hash.with(path.as_os_str().as_encoded_bytes());
    programs.iter().fold(ToolFingerprint::new(), absorb).to_hex()
}

/// A statically linked busybox.
pub(super) fn install_busybox(repository: &Repository) -> Result<PathBuf, TaskError> {
    let place = repository.tool_directory("busybox", &machine_release()?);
    install_atomically(&place, |half| {
        let root = half.join("root");
        download_and_unpack(&["busybox-static"], half, &root)?;
        let inside = root.join("bin").join("busybox");
        let program = if inside.is_file() { inside } else { root.join("usr/bin/busybox") };
        fs::copy(&program, half.join("busybox")).map_err(file_error("copy", &program))?;
        remove_directory(&root)
    })?;
    Ok(place.join("busybox"))
}

/// The package of Chromium without windows, and fonts, in case the machine has none.
const CHROMIUM_PACKAGES: [&str; 2] = ["chromium-headless-shell", "fonts-dejavu-core"];

/// Chromium without windows.
pub(crate) fn chromium(repository: &Repository) -> Result<PathBuf, TaskError> {
    Ok(install_chromium(repository)?.path.join("chromium"))
}

/// Installs Chromium with the libraries that the machine lacks.
pub(super) fn install_chromium(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let place = repository.tool_directory("chromium", &chromium_fingerprint()?);
    install_atomically(&place, |half| {
        let root = half.join("root");
        let archives = half.join("archives");
        make_directory(&archives.join("partial"))?;
        run_with_package_lists(|| {
            // Downloads the packages, and those that they need and the machine lacks.
            let mut download = Command::new("apt-get");
            download.args(["-qq", "--yes", "--no-install-recommends", "--download-only"]);
            download.args(["-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", "-o"]);
            download.arg(format!("Dir::Cache::archives={}", archives.display()));
            download.arg("install").args(CHROMIUM_PACKAGES);
            download
        })?;
        unpack_archives(&archives, &root)?;
        let program = half.join("chromium");
        fs::write(&program, CHROMIUM_SCRIPT).map_err(file_error("write", &program))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .map_err(file_error("make executable", &program))?;
        // Fails if a library is missing.
        let mut check = Command::new(&program);
        check.args(["--no-sandbox", "--dump-dom", "about:blank"]);
        process::capture_stdout(&mut check).map(drop)
    })?;
    let version = process::capture_stdout(Command::new(place.join("chromium")).arg("--version"))?;
    Ok(InstalledTool { version: version_word(&String::from_utf8_lossy(&version)), path: place })
}

/// The release of the machine, with a fingerprint of the packages and the script.
fn chromium_fingerprint() -> Result<String, TaskError> {
    let packages = CHROMIUM_PACKAGES
        .iter()
        .fold(ToolFingerprint::new(), |hash, package| hash.with(package.as_bytes()));
    Ok(format!("{}-{}", machine_release()?, packages.with(CHROMIUM_SCRIPT.as_bytes()).to_hex()))
}

/// Runs the program with the libraries beside it. Their names contain the architecture of the machine.
const CHROMIUM_SCRIPT: &str = r#"#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
for directory in "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/pulseaudio; do
    LD_LIBRARY_PATH="$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$root/usr/lib/chromium/chromium-headless-shell" "$@"
"#;

/// Downloads packages and unpacks them below `root`; `scratch` is a directory to work in.
fn download_and_unpack(packages: &[&str], scratch: &Path, root: &Path) -> Result<(), TaskError> {
    let archives = scratch.join("archives");
    make_directory(&archives)?;
    run_with_package_lists(|| {
        let mut download = Command::new("apt-get");
        // As another user, apt could not write into the download directory.
        download.args(["-qq", "-o", "APT::Sandbox::User=root", "download"]).args(packages);
        download.current_dir(&archives);
        download
    })?;
    unpack_archives(&archives, root)
}

/// Runs a command of apt; if it fails, again with new package lists.
fn run_with_package_lists(command: impl Fn() -> Command) -> Result<(), TaskError> {
    if process::run(&mut command()).is_ok() {
        return Ok(());
    }
    // The package lists may be empty on a new machine, or out of date.
    process::run(Command::new("apt-get").args(["-qq", "update"]))?;
    process::run(&mut command())
}

/// Unpacks the packages in `archives` below `root`, and removes them.
fn unpack_archives(archives: &Path, root: &Path) -> Result<(), TaskError> {
    for archive in super::cache::list_files(archives)? {
        process::run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(root))?;
    }
    remove_directory(archives)
}

fn missing_program_error(program: &str) -> TaskError {
    TaskError::Findings {
        check: "programs that the Debian packages lack",
        findings: vec![program.to_owned()],
    }
}

/// The release of the machine. It is part of the path, because packages get only fixes within one release.
fn machine_release() -> Result<String, TaskError> {
    let path = Path::new("/etc/os-release");
    let text = fs::read_to_string(path).map_err(file_error("read", path))?;
    Ok(release_name(&text))
}

fn release_name(os_release: &str) -> String {
    let value = |key: &str| {
        os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map_or("unknown", |value| value.trim_matches('"'))
    };
    format!("{}-{}", value("ID"), value("VERSION_ID"))
}

/// The version in `containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1`.
fn version_word(line: &str) -> String {
    let is_version =
        |word: &&str| word.trim_start_matches('v').starts_with(|it: char| it.is_ascii_digit());
    line.split_whitespace().find(is_version).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_named_by_id_and_version() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(release_name(text), "debian-12");
        assert_eq!(release_name("ID=debian\n"), "debian-unknown");
    }

    #[test]
    fn paths_fingerprint_depends_on_the_paths() {
        let [one, other] =
            ["/usr/bin/runc", "/usr/local/bin/runc"].map(|it| paths_fingerprint(&[it.into()]));
        assert_ne!(one, other);
    }

    #[test]
    fn version_is_the_first_word_with_a_digit() {
        let line = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1";
        assert_eq!(version_word(line), "1.6.20~ds1");
        assert_eq!(version_word("containerd example.org/c v2.1.0 abcdef"), "v2.1.0");
    }
}
