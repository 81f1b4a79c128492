//! A memory cgroup for one process, of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

/// A cgroup that is removed when it is dropped. Its processes must have ended by then.
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
    /// Whether this process can create a memory cgroup.
    pub(crate) fn is_available() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        let writable = |root: &Path| rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
        is_root && cgroup_root().is_some_and(|(root, _)| writable(&root))
    }

    /// Creates a cgroup with a memory limit in bytes.
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
                // The file does not exist if swap is not accounted.
                let _without_swap = cgroup.write("memory.swap.max", 0);
            }
        }
        Ok(cgroup)
    }

    /// The file to which a process writes its process ID to join.
    pub(crate) fn procs_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The number of processes that the OOM killer killed.
    pub(crate) fn oom_kills(&self) -> Result<u64, Failed> {
        let file = match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count
            .ok_or(format!("{file} does not contain the number of kills: {text}"))?
            .trim()
            .parse()?)
    }

    /// The number of anonymous and tmpfs bytes of the processes. The page cache, including the program, is
    /// not counted, because the kernel reclaims it under memory pressure.
    pub(crate) fn charged_bytes(&self) -> Result<u64, Failed> {
        let text = fs::read_to_string(self.dir.join("memory.stat"))?;
        let own = match self.version {
            CgroupVersion::V1 => "rss",
            CgroupVersion::V2 => "anon",
        };
        let mut charged = 0;
        for line in text.lines() {
            let (name, bytes) = line.split_once(' ').unwrap_or_default();
            if name == own || name == "shmem" {
                charged += bytes.parse::<u64>()?;
            }
        }
        Ok(charged)
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
