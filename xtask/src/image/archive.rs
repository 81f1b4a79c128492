//! Writes image archives without a container tool or a base image.
//!
//! The format is docker-archive, which `docker load`, `podman load`, `skopeo` and containerd read: a tar with
//! `manifest.json`, the image's configuration and one layer, each named after its SHA-256 digest. The output
//! is reproducible: entries are sorted, owned by 0:0 and have the epoch as their modification time.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::{fs, io};

use serde::Serialize;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::task_error::TaskError;

/// The content of an image archive.
#[derive(Debug)]
pub(crate) struct ContainerImage {
    /// The image name with its tag.
    pub(crate) reference: String,
    pub(crate) entrypoint: Vec<String>,
    /// The variables as `NAME=value`.
    pub(crate) environment: Vec<String>,
    pub(crate) entries: Vec<ImageEntry>,
}

/// A file of the image. Parent directories are added automatically.
#[derive(Debug, Clone)]
pub(crate) struct ImageEntry {
    path: String,
    mode: u32,
    content: ImageEntryContent,
}

#[derive(Debug, Clone)]
enum ImageEntryContent {
    File(Vec<u8>),
    Directory,
    Link(String),
}

impl ImageEntry {
    /// A world-readable file; the path is relative to the root.
    pub(crate) fn file(path: &str, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o644, content: ImageEntryContent::File(content) }
    }

    /// A world-executable program.
    pub(crate) fn program(path: &str, content: Vec<u8>) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }

    pub(crate) fn link(path: &str, target: &str) -> Self {
        Self {
            path: path.to_owned(),
            mode: 0o777,
            content: ImageEntryContent::Link(target.to_owned()),
        }
    }

    /// The path, relative to the root.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Writes the entry below a directory instead of into an archive.
    pub(crate) fn write_below(&self, root: &Path) -> io::Result<()> {
        let path = root.join(&self.path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        match &self.content {
            ImageEntryContent::File(content) => fs::write(&path, content)?,
            ImageEntryContent::Directory => fs::create_dir_all(&path)?,
            ImageEntryContent::Link(target) => return symlink(target, &path),
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(self.mode))
    }

    /// Appends the entry to an archive, owned by 0:0 and with the epoch as its modification time.
    fn append_to(&self, archive: &mut Builder<Vec<u8>>) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_mode(self.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let content: &[u8] = match &self.content {
            ImageEntryContent::File(content) => content,
            ImageEntryContent::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                return archive.append_data(&mut header, format!("{}/", self.path), io::empty());
            }
            ImageEntryContent::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                return archive.append_link(&mut header, &self.path, target);
            }
        };
        header.set_size(u64::try_from(content.len()).map_err(io::Error::other)?);
        archive.append_data(&mut header, &self.path, content)
    }

    /// An empty directory with the given mode.
    pub(crate) fn directory(path: &str, mode: u32) -> Self {
        Self { path: path.to_owned(), mode, content: ImageEntryContent::Directory }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ImageManifest<'a> {
    config: String,
    repo_tags: [&'a str; 1],
    layers: [String; 1],
}

#[derive(Serialize)]
struct ImageConfiguration<'a> {
    created: &'a str,
    architecture: &'a str,
    os: &'a str,
    config: ImageSettings<'a>,
    rootfs: ImageRootFs,
    history: [ImageHistory; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ImageSettings<'a> {
    user: &'a str,
    entrypoint: &'a [String],
    env: &'a [String],
    working_dir: &'a str,
}

#[derive(Serialize)]
struct ImageRootFs {
    r#type: &'static str,
    diff_ids: [String; 1],
}

#[derive(Serialize)]
struct ImageHistory {
    created: &'static str,
    created_by: &'static str,
}

const EPOCH: &str = "1970-01-01T00:00:00Z";

impl ContainerImage {
    /// The bytes of the archive.
    pub(crate) fn to_archive(&self) -> Result<Vec<u8>, TaskError> {
        let layer = tar_archive(&self.entries)?;
        let layer_digest = sha256_hex(&layer);
        let configuration = to_json(&ImageConfiguration {
            created: EPOCH,
            architecture: image_architecture(std::env::consts::ARCH),
            os: "linux",
            config: ImageSettings {
                user: "0:0",
                entrypoint: &self.entrypoint,
                env: &self.environment,
                working_dir: "/",
            },
            rootfs: ImageRootFs { r#type: "layers", diff_ids: [format!("sha256:{layer_digest}")] },
            history: [ImageHistory { created: EPOCH, created_by: "cargo xtask image" }],
        })?;
        let manifest = ImageManifest {
            config: format!("{}.json", sha256_hex(&configuration)),
            repo_tags: [&self.reference],
            layers: [format!("{layer_digest}.tar")],
        };
        tar_archive(&[
            ImageEntry::file("manifest.json", to_json(&[&manifest])?),
            ImageEntry::file(&manifest.config, configuration),
            ImageEntry::file(&manifest.layers[0], layer),
        ])
    }
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, TaskError> {
    serde_json::to_vec(value)
        .map_err(|source| TaskError::Json { what: "the description of an image", source })
}

fn sha256_hex(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The architecture name of images for an architecture name of Rust.
fn image_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A tar archive of the entries and their parent directories, sorted by path.
fn tar_archive(entries: &[ImageEntry]) -> Result<Vec<u8>, TaskError> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            let above = &entry.path[..end];
            sorted.entry(above.to_owned()).or_insert_with(|| ImageEntry::directory(above, 0o755));
        }
        sorted.insert(entry.path.clone(), entry.clone());
    }
    let mut archive = Builder::new(Vec::new());
    for entry in sorted.values() {
        entry.append_to(&mut archive).map_err(archive_error(&entry.path))?;
    }
    archive.into_inner().map_err(archive_error("the end of the archive"))
}

fn archive_error(path: &str) -> impl FnOnce(io::Error) -> TaskError {
    let path = path.into();
    move |source| TaskError::File { action: "archive", path, source }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn test_image(entries: Vec<ImageEntry>) -> ContainerImage {
        ContainerImage {
            reference: "localhost/example:1".to_owned(),
            entrypoint: vec!["/run".to_owned()],
            environment: vec!["A=b".to_owned()],
            entries,
        }
    }

    /// The name, type, mode and content of each entry.
    fn read_tar(archive: &[u8]) -> Vec<(String, EntryType, u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().expect("it is a tar archive").map(|entry| {
            let mut entry = entry.expect("a complete entry");
            let header = entry.header().clone();
            let number = |value: io::Result<u64>| value.expect("octal");
            let owner_and_time = [header.uid(), header.gid(), header.mtime()].map(number);
            assert_eq!(owner_and_time, [0, 0, 0]);
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("it is in memory");
            (name, header.entry_type(), header.mode().expect("octal"), content)
        });
        entries.collect()
    }

    #[test]
    fn the_archive_names_its_layer_and_configuration_by_their_digests() {
        let archive = test_image(vec![
            ImageEntry::program("run", b"program".to_vec()),
            ImageEntry::link("etc/deep/link", "../run"),
        ])
        .to_archive()
        .expect("it fits");
        let files = read_tar(&archive);
        let content = |name: &str| {
            &files.iter().find(|(found, ..)| found == name).unwrap_or_else(|| panic!("{name}")).3
        };
        let manifest: serde_json::Value =
            serde_json::from_slice(content("manifest.json")).expect("JSON");
        assert_eq!(manifest[0]["RepoTags"][0], "localhost/example:1");
        let layer = content(manifest[0]["Layers"][0].as_str().expect("a name"));
        let configuration = content(manifest[0]["Config"].as_str().expect("a name"));
        assert_eq!(manifest[0]["Config"], format!("{}.json", sha256_hex(configuration)));
        let configuration: serde_json::Value = serde_json::from_slice(configuration).expect("JSON");
        assert_eq!(
            configuration["rootfs"]["diff_ids"][0],
            format!("sha256:{}", sha256_hex(layer)),
            "containerd compares it with what it unpacks"
        );
        assert_eq!(configuration["config"]["User"], "0:0");
        let entries: Vec<_> =
            read_tar(layer).into_iter().map(|(name, kind, mode, _)| (name, kind, mode)).collect();
        let expected = [
            ("etc/", EntryType::Directory, 0o755),
            ("etc/deep/", EntryType::Directory, 0o755),
            ("etc/deep/link", EntryType::Symlink, 0o777),
            ("run", EntryType::Regular, 0o755),
        ];
        assert_eq!(entries, expected.map(|(name, kind, mode)| (name.to_owned(), kind, mode)));
    }

    #[test]
    fn equal_input_in_another_order_gives_equal_bytes() {
        let entries = [
            ImageEntry::file("b", b"2".to_vec()),
            ImageEntry::file("a", vec![7; 513]),
            ImageEntry::link("c", "a"),
        ];
        let mut backwards = entries.to_vec();
        backwards.reverse();
        assert_eq!(
            test_image(entries.to_vec()).to_archive().expect("it fits"),
            test_image(backwards).to_archive().expect("it fits")
        );
    }

    #[test]
    fn digest_matches_the_standard() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
