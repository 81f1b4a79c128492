//! The programs that each suite needs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::SuiteName;
use crate::image::archive::{ContainerImage, ImageEntry};
use crate::image::{self, ImageKind};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::{self, KubernetesVersion};

/// A flag of the driver and its value.
pub(super) type SuiteFlag = [OsString; 2];

/// The image of the program that runs in the pods of the suite `node`.
const PROBE_POD_IMAGE: &str = "localhost/lanyard/witness:1";

/// Installs and builds the programs of a suite, and names them to the driver.
pub(super) fn suite_flags(
    house: &Repository,
    suite: SuiteName,
    kubernetes: KubernetesVersion,
) -> Result<Vec<SuiteFlag>, TaskError> {
    let conformance = house.root().join("conformance");
    let go = |name| tools::go_program(house, name);
    Ok(match suite {
        SuiteName::Go => vec![path_flag("--program", &tools::go_clients(house)?.join("witness"))],
        SuiteName::Requests => vec![
            path_flag("--program", &tools::go_clients(house)?.join("requests")),
            path_flag("--accepted", &accepted_differences_file(&conformance)),
        ],
        SuiteName::Python => vec![
            path_flag("--program", &tools::python_clients(house)?),
            path_flag("--script", &conformance.join("python").join("clients.py")),
        ],
        SuiteName::Rust => vec![path_flag("--program", &tools::rust_clients(house)?)],
        SuiteName::Kubernetes | SuiteName::Operator => vec![node_flag(house, kubernetes)?],
        SuiteName::Chart => {
            vec![node_flag(house, kubernetes)?, tool_flag("helm", &go("helm")?.join("helm"))]
        }
        SuiteName::Csi => vec![
            node_flag(house, kubernetes)?,
            tool_flag("csi-sanity", &go("csi-sanity")?.join("csi-sanity")),
            tool_flag("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        SuiteName::Interop => vec![
            node_flag(house, kubernetes)?,
            tool_flag("driver-1.5", &go("secrets-store-csi-driver-1.5")?.join(DRIVER_PROGRAM)),
            tool_flag("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER_PROGRAM)),
            tool_flag("azure-provider", &go("azure-provider")?.join(PROVIDER_PROGRAM)),
            tool_flag("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        SuiteName::Node => vec![
            node_flag(house, kubernetes)?,
            tool_flag("helm", &go("helm")?.join("helm")),
            tool_flag("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER_PROGRAM)),
            tool_flag("azure-provider", &go("azure-provider")?.join(PROVIDER_PROGRAM)),
            image_flag(house, ImageKind::Node)?,
            tool_flag("witness-image", &build_probe_pod_image(house)?),
        ],
        SuiteName::Kms => vec![
            node_flag(house, kubernetes)?,
            tool_flag("kubernetes-kms", &go("kubernetes-kms")?.join("kubernetes-kms")),
        ],
        SuiteName::HostedCluster => vec![
            node_flag(house, kubernetes)?,
            tool_flag("helm", &go("helm")?.join("helm")),
            image_flag(house, ImageKind::Azure)?,
            image_flag(house, ImageKind::Lanyard)?,
            image_flag(house, ImageKind::Node)?,
        ],
    })
}

/// The programs of the benchmark of the node plugin.
pub(super) fn benchmark_flags(
    house: &Repository,
    lanyard: &Path,
) -> Result<Vec<SuiteFlag>, TaskError> {
    let go = |name| tools::go_program(house, name);
    Ok(vec![
        node_flag(house, KubernetesVersion::V1_36)?,
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

fn tool_flag(name: &str, path: &Path) -> SuiteFlag {
    let mut value = OsString::from(name);
    value.push("=");
    value.push(path);
    ["--tool".into(), value]
}

fn node_flag(house: &Repository, kubernetes: KubernetesVersion) -> Result<SuiteFlag, TaskError> {
    Ok(tool_flag("node", &tools::node_programs(house, kubernetes)?))
}

/// The archive of an image under the name of the image: `lanyard-node-image` and so on.
fn image_flag(house: &Repository, product: ImageKind) -> Result<SuiteFlag, TaskError> {
    let archive = image::build_for_suites(house, product)?.archive;
    Ok(tool_flag(&format!("{}-image", product.name()), &archive))
}

fn accepted_differences_file(conformance: &Path) -> PathBuf {
    conformance.join("suites").join("accepted-differences.json")
}

/// The image of the witness: one program that needs nothing beside it.
fn build_probe_pod_image(house: &Repository) -> Result<PathBuf, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let directory = house.target_directory().join("witness");
    let workspace = house.root().join("conformance").join("kubernetes").join("witness");
    let mut build = house.cargo_in(&workspace);
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
