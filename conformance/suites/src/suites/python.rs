//! Azure SDK for Python.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::client_cases::{self, ClientCase, ExpectedAnswer};
use super::failed_with_causes;
use super::lifecycles::LifecycleClient;
use crate::azure_target::{AzureTarget, LocalAzureTarget};
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

const SECRET_FORBIDDEN: ExpectedAnswer =
    ExpectedAnswer::Denied { code: "Forbidden", inner: Some("ForbiddenByRbac") };
const GROUP_FORBIDDEN: ExpectedAnswer =
    ExpectedAnswer::Denied { code: "AuthorizationFailed", inner: None };

const CASES: [ClientCase; 25] = [
    ClientCase::new("token:certificate", SignInMethod::Certificate, ExpectedAnswer::Token),
    ClientCase::new("token:secret", SignInMethod::Secret, ExpectedAnswer::Token),
    ClientCase::new("token:federated", SignInMethod::Federated, ExpectedAnswer::Token),
    ClientCase::new("token:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Token),
    ClientCase::new("vault:certificate", SignInMethod::Certificate, ExpectedAnswer::Secret),
    ClientCase::new("vault:secret", SignInMethod::Secret, ExpectedAnswer::Secret),
    ClientCase::new("vault:federated", SignInMethod::Federated, ExpectedAnswer::Secret),
    ClientCase::new(
        "vault:managed-identity",
        SignInMethod::ManagedIdentity,
        ExpectedAnswer::Secret,
    ),
    ClientCase::new("arm:certificate", SignInMethod::Certificate, ExpectedAnswer::Group),
    ClientCase::new("arm:secret", SignInMethod::Secret, ExpectedAnswer::Group),
    ClientCase::new("arm:federated", SignInMethod::Federated, ExpectedAnswer::Group),
    ClientCase::new(
        "token:wrong-signature",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700027"),
    ),
    ClientCase::new(
        "token:wrong-audience",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700023"),
    ),
    ClientCase::new(
        "token:expired-assertion",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700024"),
    ),
    ClientCase::new(
        "token:unknown-thumbprint",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700027"),
    ),
    ClientCase::new(
        "token:unknown-application",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700016"),
    ),
    ClientCase::new(
        "token:wrong-secret",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS7000215"),
    ),
    ClientCase::new("token:password", SignInMethod::User, ExpectedAnswer::Token),
    ClientCase::new("token:device-code", SignInMethod::User, ExpectedAnswer::Token),
    ClientCase::new("token:browser", SignInMethod::User, ExpectedAnswer::Token),
    ClientCase::new("arm:password", SignInMethod::User, ExpectedAnswer::Group),
    ClientCase::new(
        "token:wrong-password",
        SignInMethod::User,
        ExpectedAnswer::Refused("AADSTS50126"),
    ),
    ClientCase::new(
        "token:unknown-user",
        SignInMethod::User,
        ExpectedAnswer::Refused("AADSTS50034"),
    ),
    ClientCase::new("vault:certificate", SignInMethod::Certificate, SECRET_FORBIDDEN),
    ClientCase::new("arm:certificate", SignInMethod::Certificate, GROUP_FORBIDDEN),
];

pub(crate) fn trials(
    target: &Arc<AzureTarget>,
    program: &ClientProgram,
    runtime: &Arc<Runtime>,
) -> Vec<Trial> {
    let mut trials = client_cases::trials("python", &CASES, target, program);
    let is_local = matches!(&**target, AzureTarget::Local(_));
    let (target, program, runtime) = (Arc::clone(target), program.clone(), Arc::clone(runtime));
    let run = move || match &*target {
        AzureTarget::Local(local) => second_node_has_its_own_identity(local, &program, &runtime),
        AzureTarget::Live(_) => Err("this case needs a local Azure".into()),
    };
    let name = "python::managed_identity_of_a_second_node";
    trials.push(Trial::test(name, run).with_ignored_flag(!is_local));
    trials
}

/// A node with only the federated test identity: the client gets its token, and none of the identity of the
/// first node. The client selects the node by the user name at the proxy, then by the path.
fn second_node_has_its_own_identity(
    local: &LocalAzureTarget,
    program: &ClientProgram,
    runtime: &Runtime,
) -> Result<(), Failed> {
    let identity = local.inputs(SignInMethod::Federated).client;
    let node: Value = runtime
        .block_on(local.control_api().put("nodes/worker-1", &json!({ "identities": [identity] })))
        .map_err(failed_with_causes)?;
    let text = |field: &str| node[field].as_str().unwrap_or_default().to_owned();
    let mut by_proxy = local.client_environment();
    for name in ["HTTP_PROXY", "http_proxy"] {
        by_proxy.insert(name, text("proxyUrl").into());
    }
    let mut by_path = local.client_environment();
    by_path.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", text("metadataUrl").into());
    by_path.insert("NO_PROXY", "127.0.0.1".into());
    for environment in [by_proxy, by_path] {
        let program = program.with_environment(environment);
        let mut inputs = local.inputs(SignInMethod::ManagedIdentity);
        let refused =
            program.run_case("token:managed-identity", &inputs).map_err(failed_with_causes)?;
        if !refused.to_string().contains("Identity not found") {
            return Err(format!("the identity of another node: {refused}").into());
        }
        inputs.client.clone_from(&identity);
        let answer =
            program.run_case("token:managed-identity", &inputs).map_err(failed_with_causes)?;
        if answer.pointer("/token/appid") != Some(&json!(identity)) {
            return Err(format!("the identity of the node: {answer}").into());
        }
    }
    Ok(())
}

/// The packages azure-keyvault-*, azure-mgmt-* and azure-storage-blob, and Microsoft Graph.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &[
        "network",
        "clusters",
        "secrets",
        "certificates",
        "keys",
        "vaults",
        "storage",
        "blobs",
        "identities",
        "roles",
        "private-dns",
        "dns",
        "resources",
        "graph",
    ];
    LifecycleClient { name: "python", program, lifecycles: LIFECYCLES }
}
