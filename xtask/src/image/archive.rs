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

const BLOCK_SIZE: usize = 512;

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
    let mut archive = Vec::new();
    for entry in sorted.values() {
        archive.extend(tar_header(entry)?);
        if let ImageEntryContent::File(content) = &entry.content {
            archive.extend_from_slice(content);
            archive.resize(archive.len().next_multiple_of(BLOCK_SIZE), 0);
        }
    }
    // Two empty blocks end the archive.
    archive.resize(archive.len() + 2 * BLOCK_SIZE, 0);
    Ok(archive)
}

/// A header block of POSIX.1-1988 (`ustar`), which limits names to 100 bytes.
fn tar_header(entry: &ImageEntry) -> Result<[u8; BLOCK_SIZE], TaskError> {
    let (kind, name, target, size) = match &entry.content {
        ImageEntryContent::File(content) => (b'0', entry.path.clone(), "", content.len()),
        ImageEntryContent::Link(target) => (b'2', entry.path.clone(), target.as_str(), 0),
        ImageEntryContent::Directory => (b'5', format!("{}/", entry.path), "", 0),
    };
    let mut block = [0; BLOCK_SIZE];
    let mut put = |offset: usize, width: usize, value: &[u8]| {
        if value.len() > width {
            return Err(TaskError::Findings {
                check: "entries that do not fit into an image archive",
                findings: vec![entry.path.clone()],
            });
        }
        block[offset..offset + value.len()].copy_from_slice(value);
        Ok(())
    };
    put(0, 100, name.as_bytes())?;
    put(100, 7, format!("{:07o}", entry.mode).as_bytes())?;
    put(108, 7, b"0000000")?;
    put(116, 7, b"0000000")?;
    put(124, 11, format!("{size:011o}").as_bytes())?;
    put(136, 11, b"00000000000")?;
    // The checksum is computed with blanks in the checksum field.
    put(148, 8, b"        ")?;
    put(156, 1, &[kind])?;
    put(157, 100, target.as_bytes())?;
    put(257, 8, b"ustar\x0000")?;
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_image(entries: Vec<ImageEntry>) -> ContainerImage {
        ContainerImage {
            reference: "localhost/example:1".to_owned(),
            entrypoint: vec!["/run".to_owned()],
            environment: vec!["A=b".to_owned()],
            entries,
        }
    }

    /// The name, kind and content of each entry, parsed according to the format.
    fn read_tar(archive: &[u8]) -> Vec<(String, char, Vec<u8>)> {
        let mut found = Vec::new();
        let mut rest = archive;
        while rest[0] != 0 {
            let (block, after) = rest.split_at(BLOCK_SIZE);
            let text = |range: std::ops::Range<usize>| {
                let field = block[range].split(|byte| *byte == 0).next().unwrap_or_default();
                String::from_utf8_lossy(field).into_owned()
            };
            let number = |range| usize::from_str_radix(text(range).trim(), 8).expect("octal");
            let mut blanked = block.to_vec();
            blanked[148..156].fill(b' ');
            assert_eq!(
                number(148..156),
                blanked.iter().map(|byte| usize::from(*byte)).sum::<usize>(),
                "the checksum is right"
            );
            assert_eq!(text(257..263), "ustar");
            assert_eq!((number(108..116), number(116..124), number(136..148)), (0, 0, 0));
            let size = number(124..136);
            found.push((text(0..100), char::from(block[156]), after[..size].to_vec()));
            rest = &after[size.next_multiple_of(BLOCK_SIZE)..];
        }
        assert_eq!(rest.len(), 2 * BLOCK_SIZE, "two empty blocks end it");
        found
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
            &files.iter().find(|(found, ..)| found == name).unwrap_or_else(|| panic!("{name}")).2
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
        let names: Vec<_> =
            read_tar(layer).into_iter().map(|(name, kind, _)| (name, kind)).collect();
        let expected = [("etc/", '5'), ("etc/deep/", '5'), ("etc/deep/link", '2'), ("run", '0')];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
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
    fn too_long_entry_name_is_refused() {
        let long = "x".repeat(101);
        let error = test_image(vec![ImageEntry::file(&long, Vec::new())])
            .to_archive()
            .expect_err("too long");
        assert!(error.to_string().contains(&long));
    }

    #[test]
    fn digest_matches_the_standard() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
