//! A memory cgroup for one process, of either version.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

/// A cgroup that is removed when it is dropped; by then its processes have to be gone.
#[derive(Debug)]
pub(crate) struct MemoryCgroup {
    dir: PathBuf,
    version: CgroupVersion,
}

#[derive(Debug, Clone, Copy)]
enum CgroupVersion {
    V1,
    V2,
}

impl MemoryCgroup {
    /// Whether one can be made here.
    pub(crate) fn is_available() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        let writable = |root: &Path| rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
        is_root && cgroup_root().is_some_and(|(root, _)| writable(&root))
    }

    /// A cgroup whose processes may hold so many bytes.
    pub(crate) fn new(limit: u64) -> Result<Self, Failed> {
        let (root, version) =
            cgroup_root().ok_or("there is no memory cgroup: mount one, or run as root")?;
        let dir = root.join(format!("lanyard-test-{}-{}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let cgroup = Self { dir, version };
        match version {
            CgroupVersion::V1 => cgroup.write("memory.limit_in_bytes", limit)?,
            CgroupVersion::V2 => {
                cgroup.write("memory.max", limit)?;
                // Where swap is not accounted there is no such file.
                let _without_swap = cgroup.write("memory.swap.max", 0);
            }
        }
        Ok(cgroup)
    }

    /// The file to which a process writes itself.
    pub(crate) fn procs_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// How many processes were killed because they held too much.
    pub(crate) fn oom_kills(&self) -> Result<u64, Failed> {
        let file = match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.ok_or(format!("{file} does not tell kills: {text}"))?.trim().parse()?)
    }

    /// How many bytes the processes hold of their own and in memory file systems. Caches of files, the
    /// program among them, are left out: they are given back when something else needs the room.
    pub(crate) fn charged_bytes(&self) -> Result<u64, Failed> {
        let text = fs::read_to_string(self.dir.join("memory.stat"))?;
        let own = match self.version {
            CgroupVersion::V1 => "rss",
            CgroupVersion::V2 => "anon",
        };
        let mut held = 0;
        for line in text.lines() {
            let (name, bytes) = line.split_once(' ').unwrap_or_default();
            if name == own || name == "shmem" {
                held += bytes.parse::<u64>()?;
            }
        }
        Ok(held)
    }

    fn write(&self, file: &str, value: u64) -> Result<(), Failed> {
        let path = self.dir.join(file);
        let written = fs::write(&path, value.to_string());
        Ok(written.map_err(|error| format!("{}: {error}", path.display()))?)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.dir);
    }
}

fn cgroup_root() -> Option<(PathBuf, CgroupVersion)> {
    let one = PathBuf::from("/sys/fs/cgroup/memory");
    if one.join("memory.limit_in_bytes").exists() {
        return Some((one, CgroupVersion::V1));
    }
    let two = PathBuf::from("/sys/fs/cgroup");
    let controllers = fs::read_to_string(two.join("cgroup.subtree_control")).ok()?;
    let has_memory = controllers.split_whitespace().any(|name| name == "memory");
    has_memory.then_some((two, CgroupVersion::V2))
}
