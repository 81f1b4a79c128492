//! The programs that each suite needs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::Suite;
use crate::failure::TaskError;
use crate::house::House;
use crate::image::archive::{Entry, Image};
use crate::image::{self, Product};
use crate::process;
use crate::tools::{self, KubernetesVersion};

/// A flag of the driver and its value.
pub(super) type Flag = [OsString; 2];

/// The image of the program that runs in the pods of the suite `node`.
const WITNESS: &str = "localhost/lanyard/witness:1";

/// Installs and builds the programs of a suite, and names them to the driver.
pub(super) fn flags(
    house: &House,
    suite: Suite,
    kubernetes: KubernetesVersion,
) -> Result<Vec<Flag>, TaskError> {
    let conformance = house.root().join("conformance");
    let go = |name| tools::go_program(house, name);
    Ok(match suite {
        Suite::Go => vec![flag("--program", &tools::go_clients(house)?.join("witness"))],
        Suite::Requests => vec![
            flag("--program", &tools::go_clients(house)?.join("requests")),
            flag("--accepted", &accepted_differences(&conformance)),
        ],
        Suite::Python => vec![
            flag("--program", &tools::python_clients(house)?),
            flag("--script", &conformance.join("python").join("clients.py")),
        ],
        Suite::Rust => vec![flag("--program", &tools::rust_clients(house)?)],
        Suite::Kubernetes | Suite::Operator => vec![node(house, kubernetes)?],
        Suite::Chart => vec![node(house, kubernetes)?, tool("helm", &go("helm")?.join("helm"))],
        Suite::Csi => vec![
            node(house, kubernetes)?,
            tool("csi-sanity", &go("csi-sanity")?.join("csi-sanity")),
            tool("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        Suite::Interop => vec![
            node(house, kubernetes)?,
            tool("driver-1.5", &go("secrets-store-csi-driver-1.5")?.join(DRIVER)),
            tool("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER)),
            tool("azure-provider", &go("azure-provider")?.join(PROVIDER)),
            tool("mock-provider", &go("mock-provider")?.join("mock-provider")),
        ],
        Suite::Node => vec![
            node(house, kubernetes)?,
            tool("helm", &go("helm")?.join("helm")),
            tool("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER)),
            tool("azure-provider", &go("azure-provider")?.join(PROVIDER)),
            image(house, Product::Node)?,
            tool("witness-image", &build_witness(house)?),
        ],
        Suite::Kms => vec![
            node(house, kubernetes)?,
            tool("kubernetes-kms", &go("kubernetes-kms")?.join("kubernetes-kms")),
        ],
        Suite::HostedCluster => vec![
            node(house, kubernetes)?,
            tool("helm", &go("helm")?.join("helm")),
            image(house, Product::Azure)?,
            image(house, Product::Lanyard)?,
            image(house, Product::Node)?,
        ],
    })
}

/// The programs of the benchmark of the node plugin.
pub(super) fn for_measuring(house: &House, lanyard: &Path) -> Result<Vec<Flag>, TaskError> {
    let go = |name| tools::go_program(house, name);
    Ok(vec![
        node(house, KubernetesVersion::V1_36)?,
        tool("driver-1.6", &go("secrets-store-csi-driver-1.6")?.join(DRIVER)),
        tool("azure-provider", &go("azure-provider")?.join(PROVIDER)),
        tool("lanyard-released", lanyard),
    ])
}

const DRIVER: &str = "secrets-store-csi-driver";
const PROVIDER: &str = "secrets-store-csi-driver-provider-azure";

fn flag(name: &str, value: &Path) -> Flag {
    [name.into(), value.into()]
}

fn tool(name: &str, path: &Path) -> Flag {
    let mut value = OsString::from(name);
    value.push("=");
    value.push(path);
    ["--tool".into(), value]
}

fn node(house: &House, kubernetes: KubernetesVersion) -> Result<Flag, TaskError> {
    Ok(tool("node", &tools::node_programs(house, kubernetes)?))
}

/// The archive of an image under the name of the image: `lanyard-node-image` and so on.
fn image(house: &House, product: Product) -> Result<Flag, TaskError> {
    let archive = image::build_for_suites(house, product)?.archive;
    Ok(tool(&format!("{}-image", product.name()), &archive))
}

fn accepted_differences(conformance: &Path) -> PathBuf {
    conformance.join("suites").join("accepted-differences.json")
}

/// The image of the witness: one program that needs nothing beside it.
fn build_witness(house: &House) -> Result<PathBuf, TaskError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let directory = house.target().join("witness");
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
    let image = Image {
        reference: WITNESS.to_owned(),
        entrypoint: vec!["/witness".to_owned()],
        environment: Vec::new(),
        entries: vec![Entry::program(
            "witness",
            fs::read(&program).map_err(file("read", &program))?,
        )],
    };
    let archive = directory.join("witness.tar");
    fs::write(&archive, image.archive()?).map_err(file("write", &archive))?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_named_and_found_in_one_argument() {
        assert_eq!(tool("helm", Path::new("/t/helm")), ["--tool", "helm=/t/helm"]);
    }
}
