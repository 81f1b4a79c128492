//! The node on which processes are killed, and what is seen on it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lanyard_node::Step;
use libtest_mimic::Failed;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use tempfile::TempDir;

use super::child::{self, files};

/// How a volume is filled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    Detached,
    InPlace,
}

/// A kubelet's directory. Whatever is mounted in it goes with it.
#[derive(Debug)]
pub(crate) struct Node {
    dir: TempDir,
    target: PathBuf,
    staging: Staging,
}

/// Something that a child is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    work: &'static str,
    version: String,
    crash: Option<Step>,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Refused,
    Killed,
}

/// A container that has bound the volume at its start.
#[derive(Debug)]
pub(crate) struct Reader(PathBuf);

impl Request {
    /// To publish this version; `fail` is one that the source refuses.
    pub(crate) fn publish(version: &str) -> Self {
        Self { work: "publish", version: version.to_owned(), crash: None }
    }

    pub(crate) fn unpublish() -> Self {
        Self { work: "unpublish", version: String::new(), crash: None }
    }

    pub(crate) fn crashing_at(mut self, step: Step) -> Self {
        self.crash = Some(step);
        self
    }
}

impl Node {
    pub(crate) fn new(staging: Staging) -> Result<Self, Failed> {
        let dir = tempfile::tempdir()?;
        let target = dir.path().join("pods/uid/volumes/kubernetes.io~csi/v/mount");
        fs::create_dir_all(target.parent().ok_or("no parent")?)?;
        Ok(Self { dir, target, staging })
    }

    /// Starts a process for one request and sees it to its end.
    pub(crate) fn run(&self, request: &Request) -> Result<Ended, Failed> {
        let output = Command::new(std::env::current_exe()?)
            .args([child::NAME, request.work])
            .args([self.dir.path(), &self.target])
            .arg(&request.version)
            .arg(if self.staging == Staging::Detached { "staged" } else { "in place" })
            .arg(request.crash.map_or("", Step::name))
            .output()?;
        match (output.status.code(), output.status.signal()) {
            (Some(0), _) => Ok(Ended::Done),
            (Some(code), _) if code == i32::from(child::REFUSED) => Ok(Ended::Refused),
            (None, Some(signal)) if signal == Signal::KILL.as_raw() => Ok(Ended::Killed),
            _ => {
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(format!("the process ended with {}: {told}", output.status).into())
            }
        }
    }

    pub(crate) fn expect(&self, request: Request, expected: Ended) -> Result<(), Failed> {
        let ended = self.run(&request)?;
        if ended == expected {
            return Ok(());
        }
        let what = match (request.crash, ended) {
            (Some(step), Ended::Done) => format!("step `{step}` was not reached"),
            _ => format!("{request:?} ended as {ended:?}, not {expected:?}"),
        };
        Err(what.into())
    }

    /// The version that a reader sees; nothing where nothing is mounted or nothing is in it.
    /// Anything between the two fails.
    pub(crate) fn seen(&self) -> Result<Option<String>, Failed> {
        version_in(&self.target)
    }

    pub(crate) fn shows(&self, version: &str) -> Result<(), Failed> {
        let layers = self.mounts().iter().filter(|point| **point == self.target).count();
        if layers != 1 {
            return Err(format!("{layers} mounts lie on the target").into());
        }
        match self.seen()? {
            Some(seen) if seen == version => Ok(()),
            seen => Err(format!("a reader sees {seen:?}, not {version}").into()),
        }
    }

    pub(crate) fn is_clean(&self) -> Result<(), Failed> {
        let mounts = self.mounts();
        if !mounts.is_empty() {
            return Err(format!("mounts are left: {mounts:?}").into());
        }
        if self.target.exists() { Err("the target is left".into()) } else { Ok(()) }
    }

    /// What a reboot leaves: the directories, and nothing mounted.
    pub(crate) fn reboot(&self) -> Result<(), Failed> {
        for point in self.mounts() {
            unmount(&point, UnmountFlags::DETACH)?;
        }
        if self.target.is_dir() { Ok(()) } else { Err("the directory is gone".into()) }
    }

    /// Starts a container on the volume.
    pub(crate) fn reader(&self) -> Result<Reader, Failed> {
        let container = self.dir.path().join("container");
        fs::create_dir(&container)?;
        mount_bind(&self.target, &container)?;
        Ok(Reader(container))
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mut points: Vec<_> =
            points.filter(|point| point.starts_with(self.dir.path())).collect();
        points.reverse();
        points
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for point in self.mounts() {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

impl Reader {
    pub(crate) fn sees(&self, version: Option<&str>) -> Result<(), Failed> {
        let seen = version_in(&self.0)?;
        if seen.as_deref() == version {
            return Ok(());
        }
        Err(format!("the container sees {seen:?}, not {version:?}").into())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _gone = unmount(&self.0, UnmountFlags::DETACH);
        let _gone = fs::remove_dir(&self.0);
    }
}

/// The version whose files, and no others, are to be read in `dir`.
fn version_in(dir: &Path) -> Result<Option<String>, Failed> {
    let mut found = BTreeMap::new();
    if dir.exists() {
        collect(dir, "", &mut found)?;
    }
    let Some(cert) = found.get("cert") else {
        let names: Vec<_> = found.keys().collect();
        return if names.is_empty() { Ok(None) } else { Err(format!("half: {names:?}").into()) };
    };
    let version = cert.trim_start_matches("cert ").to_owned();
    let whole = files(&version).into_iter().map(|(path, text)| (path.to_owned(), text));
    if found == whole.collect() {
        return Ok(Some(version));
    }
    Err(format!("half of {version}: {:?}", found.keys().collect::<Vec<_>>()).into())
}

fn collect(dir: &Path, above: &str, found: &mut BTreeMap<String, String>) -> Result<(), Failed> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if above.is_empty() && name.starts_with("..") {
            continue;
        }
        let path = format!("{above}{name}");
        // Links that lead nowhere yet, or no more, are what a reader finds absent.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_dir() => {
                collect(&entry.path(), &format!("{path}/"), found)?;
            }
            Ok(_) => {
                found.insert(path, fs::read_to_string(entry.path())?);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
