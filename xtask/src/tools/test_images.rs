//! Builds the images for the nodes of the test cluster, which cannot reach a registry: the pause image from a
//! C program, and an image with a shell from Debian's static busybox.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cache::{ToolFingerprint, file_error, install_atomically};
use super::{InstalledTool, debian};
use crate::image::archive::{ContainerImage, ImageEntry};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The file names in the directory of images, and their image references.
const PAUSE_IMAGE: (&str, &str) = ("pause.tar", "localhost/lanyard/pause:1");
const BUSYBOX_IMAGE: (&str, &str) = ("busybox.tar", "localhost/lanyard/busybox:1");

/// Increment it when the images change for another reason than their programs.
const IMAGES_REVISION: &[u8] = b"1";

pub(super) fn install(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let source = repository.root().join("conformance").join("tools").join("pause").join("pause.c");
    let busybox = debian::install_busybox(repository)?;
    let pins = [source.clone(), busybox.clone()];
    let version = ToolFingerprint::new().with(IMAGES_REVISION).with_files(&pins)?.to_hex();
    let place = repository.tool_directory("images", &version);
    install_atomically(&place, |half| {
        let pause = half.join("pause");
        let mut compile = Command::new("cc");
        compile.args(["-static", "-Os", "-s", "-Wall", "-Werror", "-o"]).arg(&pause).arg(&source);
        process::run(&mut compile)?;
        let image = ContainerImage {
            reference: PAUSE_IMAGE.1.to_owned(),
            entrypoint: vec!["/pause".to_owned()],
            environment: Vec::new(),
            entries: vec![ImageEntry::program("pause", read_bytes(&pause)?)],
        };
        write_image(&image, &half.join(PAUSE_IMAGE.0))?;
        let image = ContainerImage {
            reference: BUSYBOX_IMAGE.1.to_owned(),
            entrypoint: vec!["/bin/busybox".to_owned()],
            environment: vec!["PATH=/bin".to_owned()],
            entries: busybox_entries(read_bytes(&busybox)?),
        };
        write_image(&image, &half.join(BUSYBOX_IMAGE.0))
    })?;
    Ok(InstalledTool { version, path: place })
}

/// busybox with links for the commands that tests call.
fn busybox_entries(busybox: Vec<u8>) -> Vec<ImageEntry> {
    let mut entries = vec![ImageEntry::program("bin/busybox", busybox)];
    let names = [
        "cat",
        "chmod",
        "cp",
        "date",
        "echo",
        "env",
        "false",
        "find",
        "grep",
        "head",
        "id",
        "kill",
        "ls",
        "md5sum",
        "mkdir",
        "mount",
        "nc",
        "nslookup",
        "ps",
        "readlink",
        "rm",
        "seq",
        "sh",
        "sha256sum",
        "sleep",
        "stat",
        "tail",
        "test",
        "touch",
        "true",
        "wc",
        "wget",
    ];
    entries.extend(names.map(|name| ImageEntry::link(&format!("bin/{name}"), "busybox")));
    entries.push(ImageEntry::directory("tmp", 0o1777));
    entries
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, TaskError> {
    fs::read(path).map_err(file_error("read", path))
}

fn write_image(image: &ContainerImage, path: &Path) -> Result<(), TaskError> {
    fs::write(path, image.to_archive()?).map_err(file_error("write", path))
}
