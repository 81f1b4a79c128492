//! Images for the nodes of the test cluster. No registry is reachable, so they are made here:
//! the pause image from a C program of ours, one with a shell from Debian's static busybox.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cache::{Fingerprint, file_error, in_place};
use super::{Installed, debian};
use crate::failure::TaskError;
use crate::house::House;
use crate::image::archive::{Entry, Image};
use crate::process;

/// File names in the directory of images, and the names that pods call them by.
const PAUSE: (&str, &str) = ("pause.tar", "localhost/lanyard/pause:1");
const BUSYBOX: (&str, &str) = ("busybox.tar", "localhost/lanyard/busybox:1");

/// Raise it when the images change for another reason than their programs.
const RECIPE: &[u8] = b"1";

pub(super) fn install(house: &House) -> Result<Installed, TaskError> {
    let source = house.root().join("conformance").join("tools").join("pause").join("pause.c");
    let busybox = debian::busybox(house)?;
    let pins = [source.clone(), busybox.clone()];
    let version = Fingerprint::new().with(RECIPE).with_files(&pins)?.name();
    let place = house.tool("images", &version);
    in_place(&place, |half| {
        let pause = half.join("pause");
        let mut compile = Command::new("cc");
        compile.args(["-static", "-Os", "-s", "-Wall", "-Werror", "-o"]).arg(&pause).arg(&source);
        process::run(&mut compile)?;
        let image = Image {
            reference: PAUSE.1.to_owned(),
            entrypoint: vec!["/pause".to_owned()],
            environment: Vec::new(),
            entries: vec![Entry::program("pause", read(&pause)?)],
        };
        write(&image, &half.join(PAUSE.0))?;
        let image = Image {
            reference: BUSYBOX.1.to_owned(),
            entrypoint: vec!["/bin/busybox".to_owned()],
            environment: vec!["PATH=/bin".to_owned()],
            entries: shell(read(&busybox)?),
        };
        write(&image, &half.join(BUSYBOX.0))
    })?;
    Ok(Installed { version, path: place })
}

/// busybox under the names that tests call.
fn shell(busybox: Vec<u8>) -> Vec<Entry> {
    let mut entries = vec![Entry::program("bin/busybox", busybox)];
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
    entries.extend(names.map(|name| Entry::link(&format!("bin/{name}"), "busybox")));
    entries.push(Entry::directory("tmp", 0o1777));
    entries
}

fn read(path: &Path) -> Result<Vec<u8>, TaskError> {
    fs::read(path).map_err(file_error("read", path))
}

fn write(image: &Image, path: &Path) -> Result<(), TaskError> {
    fs::write(path, image.archive()?).map_err(file_error("write", path))
}
