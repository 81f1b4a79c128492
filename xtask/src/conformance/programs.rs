//! The programs that each suite needs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use lanyard_suite_names::SuiteName;

use crate::image::archive::{ContainerImage, ImageEntry};
use crate::image::{self, ImageKind};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::{self, KubernetesVersion};

/// A flag of the conformance driver and its value.
pub(super) type SuiteFlag = [OsString; 2];

/// The image of the pods of the suite `node`.
const PROBE_POD_IMAGE: &str = "localhost/lanyard/witness:1";

/// Installs and builds the programs of a suite, and returns the driver's flags for them.
pub(super) fn suite_flags(
    repository: &Repository,
    suite: SuiteName,
    kubernetes: KubernetesVersion,
) -> Result<Vec<SuiteFlag>, TaskError> {
    let conformance = repository.root().join("conformance");
    let go = |name| tools::go_program(repository, name);
    Ok(match suite {
        // The driver runs the other programs of this directory, too.
        SuiteName::Go => {
            vec![path_flag("--program", &tools::go_clients(repository)?.join("witness"))]
        }
        SuiteName::Requests => vec![
            path_flag("--program", &tools::go_clients(repository)?.join("requests")),
            path_flag("--accepted", &accepted_differences_file(&conformance)),
        ],
        SuiteName::Python => vec![
            path_flag("--program", &tools::python_clients(repository)?),
            path_flag("--script", &conformance.join("python").join("clients.py")),
        ],
        SuiteName::Azcli | SuiteName::Infra => vec![
            path_flag("--program", &tools::azure_cli(repository)?),
            path_flag("--script", &conformance.join("azcli").join("runner.py")),
        ],
        SuiteName::Drills => vec![
            path_flag("--program", &tools::python_clients(repository)?),
            path_flag("--script", &conformance.join("drills").join("drills.py")),
            tool_flag("azure-cli", &tools::azure_cli(repository)?),
            tool_flag("go-drills", &tools::go_clients(repository)?.join("drills")),
        ],
        SuiteName::Page => vec![
            tool_flag("chromium", &tools::chromium(repository)?),
            tool_flag("axe", &tools::axe_script(repository)?),
        ],
        SuiteName::Rust => vec![path_flag("--program", &tools::rust_clients(repository)?)],
        SuiteName::Java => {
            vec![
                path_flag("--program", Path::new("java")),
                [OsString::from("--script"), tools::java_clients(repository)?],
            ]
        }
        SuiteName::Js => vec![
            path_flag("--program", Path::new("node")),
            path_flag("--script", &tools::js_clients(repository)?),
        ],
        SuiteName::Operator => vec![node_flag(repository, kubernetes)?],
        SuiteName::Kubernetes | SuiteName::Chart => {
            vec![node_flag(repository, kubernetes)?, tool_flag("helm", &go("helm")?.join("helm"))]
        }
        SuiteName::Csi => vec![
            node_flag(repository, kubernetes)?,
            tool_flag("csi-sanity", &go("csi-sanity")?.join("csi-sanity")),
            tool_flag("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        SuiteName::Interop => vec![
            node_flag(repository, kubernetes)?,
            tool_flag("driver-1.5", &go("secrets-store-csi-driver-1.5")?.join(DRIVER_PROGRAM)),
            tool_flag("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER_PROGRAM)),
            tool_flag("azure-provider", &go("azure-provider")?.join(PROVIDER_PROGRAM)),
            tool_flag("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        SuiteName::Node => vec![
            node_flag(repository, kubernetes)?,
            tool_flag("helm", &go("helm")?.join("helm")),
            tool_flag("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER_PROGRAM)),
            tool_flag("azure-provider", &go("azure-provider")?.join(PROVIDER_PROGRAM)),
            image_flag(repository, ImageKind::Node)?,
            tool_flag("witness-image", &build_probe_pod_image(repository)?),
        ],
        SuiteName::Kms => vec![
            node_flag(repository, kubernetes)?,
            tool_flag("kubernetes-kms", &go("kubernetes-kms")?.join("kubernetes-kms")),
        ],
        SuiteName::HostedCluster => vec![
            node_flag(repository, kubernetes)?,
            tool_flag("helm", &go("helm")?.join("helm")),
            image_flag(repository, ImageKind::Azure)?,
            image_flag(repository, ImageKind::Lanyard)?,
            image_flag(repository, ImageKind::Node)?,
        ],
    })
}

/// The flags for the programs of the node plugin's benchmark.
pub(super) fn benchmark_flags(
    repository: &Repository,
    lanyard: &Path,
) -> Result<Vec<SuiteFlag>, TaskError> {
    let go = |name| tools::go_program(repository, name);
    Ok(vec![
        node_flag(repository, KubernetesVersion::V1_36)?,
        tool_flag("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER_PROGRAM)),
        tool_flag("azure-provider", &go("azure-provider")?.join(PROVIDER_PROGRAM)),
        tool_flag("lanyard-released", lanyard),
    ])
}

const DRIVER_PROGRAM: &str = "secrets-store-csi-driver";
const PROVIDER_PROGRAM: &str = "secrets-store-csi-driver-provider-azure";

fn path_flag(name: &str, value: &Path) -> SuiteFlag {
    [name.into(), value.into()]
}

pub(super) fn tool_flag(name: &str, path: &Path) -> SuiteFlag {
    let mut value = OsString::from(name);
    value.push("=");
    value.push(path);
    ["--tool".into(), value]
}

fn node_flag(
    repository: &Repository,
    kubernetes: KubernetesVersion,
) -> Result<SuiteFlag, TaskError> {
    Ok(tool_flag("node", &tools::node_programs(repository, kubernetes)?))
}

/// The flag for an image archive, named after the image: `lanyard-node-image` and so on.
fn image_flag(repository: &Repository, image_kind: ImageKind) -> Result<SuiteFlag, TaskError> {
    let archive = image::build_for_suites(repository, image_kind)?.archive;
    Ok(tool_flag(&format!("{}-image", image_kind.name()), &archive))
}

fn accepted_differences_file(conformance: &Path) -> PathBuf {
    conformance.join("suites").join("accepted-differences.json")
}

/// Builds the image of the probe pods, which contains only the static program `witness`.
fn build_probe_pod_image(repository: &Repository) -> Result<PathBuf, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let directory = repository.target_directory().join("witness");
    let workspace = repository.root().join("conformance").join("kubernetes").join("witness");
    let mut build = repository.cargo_in(&workspace);
    build.args(["build", "--locked", "--release", "--target", &target, "--target-dir"]);
    build.arg(&directory).env("RUSTFLAGS", "-C target-feature=+crt-static");
    process::run(&mut build)?;
    let program = directory.join(target).join("release").join("witness");
    let file = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| TaskError::File { action, path, source }
    };
    let image = ContainerImage {
        reference: PROBE_POD_IMAGE.to_owned(),
        entrypoint: vec!["/witness".to_owned()],
        environment: Vec::new(),
        entries: vec![ImageEntry::program(
            "witness",
            fs::read(&program).map_err(file("read", &program))?,
        )],
    };
    let archive = directory.join("witness.tar");
    fs::write(&archive, image.to_archive()?).map_err(file("write", &archive))?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_flag_contains_name_and_path() {
        assert_eq!(tool_flag("helm", Path::new("/t/helm")), ["--tool", "helm=/t/helm"]);
    }
}
