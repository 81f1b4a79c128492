//! Trials of a resource provider: unmodified msi-dataplane obtains the credentials of managed identities from
//! the MSI data plane. Each trial has its own local Azure, because some advance its clock.

use std::fs;
use std::sync::Arc;

use lanyard_vocabulary::Component;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::super::failed_with_causes;
use super::{GoSuiteFixture, arm_calls};
use crate::azure_target::{LocalAzureTarget, interception_environment};
use crate::client_program::ClientProgram;
use crate::local_azure::LocalAzure;

/// The name of the client program.
const PROGRAM: &str = "managedidentities";
const DAY_SECONDS: u32 = 86_400;

type ProviderCase = fn(&ResourceProvider<'_>) -> Result<(), Failed>;

pub(super) fn trials(fixture: &Arc<GoSuiteFixture>) -> Vec<Trial> {
    let cases: [(&str, ProviderCase); 4] = [
        (
            "go::credential_of_the_msi_data_plane_signs_in_and_is_stored",
            credential_signs_in_and_is_stored,
        ),
        ("go::msi_data_plane_requires_the_role_at_the_identity", role_is_required),
        ("go::expired_credential_of_the_msi_data_plane_is_refused", expired_credential_is_refused),
        (
            "go::msi_data_plane_renews_until_cannot_renew_after",
            credential_is_renewed_until_the_url_ends,
        ),
    ];
    let trial = |(name, case): (&str, ProviderCase)| {
        let fixture = Arc::clone(fixture);
        Trial::test(name, move || {
            let provider = ResourceProvider::start(&fixture, fixture.local()?)?;
            case(&provider)?;
            match &fixture.request_log {
                Some(log) => {
                    log.add_trial(provider.azure.control_api()).map_err(failed_with_causes)
                }
                None => Ok(()),
            }
        })
    };
    cases.into_iter().map(trial).collect()
}

/// A resource provider with its own local Azure, and one user-assigned identity of a customer.
struct ResourceProvider<'a> {
    fixture: &'a GoSuiteFixture,
    azure: LocalAzure,
    program: ClientProgram,
    component: Component,
    /// The ARM id of the identity.
    identity: String,
    client_id: String,
    /// The ARM request that the identity may send.
    granted_path: String,
    test_clients: Value,
    /// The ids of the ARM resources.
    resources: Vec<String>,
}

impl<'a> ResourceProvider<'a> {
    fn start(fixture: &'a GoSuiteFixture, local: &LocalAzureTarget) -> Result<Self, Failed> {
        let cluster = local.directory().join("hostedcluster.yaml");
        let cluster = fs::read_to_string(cluster).map_err(failed_with_causes)?;
        let azure =
            LocalAzure::start(local.azure.program(), &cluster).map_err(failed_with_causes)?;
        let environment = interception_environment(azure.proxy_url(), azure.ca_bundle());
        let granted = fixture.credentials.iter().find_map(|(component, credential)| {
            let calls = arm_calls(credential.proof_calls.as_ref()?);
            let (_, path) = calls.into_iter().find(|(name, _)| *name == "granted")?;
            Some((*component, path))
        });
        let (component, granted_path) = granted.ok_or("no component has a call of ARM")?;
        let get = |path: &'static str| {
            let reply = fixture.runtime.block_on(azure.control_api().get::<Value>(path));
            reply.map_err(failed_with_causes)
        };
        let (test_clients, state) = (get("test-clients")?, get("state")?);
        let components = state["components"].as_array().map(Vec::as_slice).unwrap_or_default();
        let row = components.iter().find(|row| row["component"] == component.name());
        let row = row.ok_or("the local Azure has no identity for the component")?;
        let resources = state["resources"].as_array().into_iter().flatten();
        Ok(Self {
            fixture,
            program: fixture.program.sibling(PROGRAM).with_environment(environment),
            component,
            identity: text(row, "/resourceId")?.to_owned(),
            client_id: text(row, "/clientId")?.to_owned(),
            granted_path,
            test_clients,
            resources: resources.filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            azure,
        })
    }

    fn control(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        let reply = self.fixture.runtime.block_on(self.azure.control_api().post(path, body));
        reply.map_err(failed_with_causes)
    }

    /// The header that ARM adds to a PUT of the provider's resource.
    fn identity_url(&self) -> Result<String, Failed> {
        let subscription = text(&self.test_clients, "/subscription")?;
        let resource = format!(
            "/subscriptions/{subscription}/resourceGroups/customer/providers/\
             Microsoft.RedHatOpenShift/hcpOpenShiftClusters/conformance"
        );
        let issued = self.control("identity-urls", &json!({ "resourceId": resource }))?;
        Ok(text(&issued, "/headers/x-ms-identity-url")?.to_owned())
    }

    fn assign_role(&self, principal: &str, role: &str, scope: &str) -> Result<(), Failed> {
        let body = json!({ "principal": principal, "role": role, "scope": scope });
        self.control("role-assignments", &body).map(drop)
    }

    fn advance_days(&self, days: u32) -> Result<(), Failed> {
        self.control("clock", &json!({ "advanceSeconds": days * DAY_SECONDS })).map(drop)
    }

    /// Runs the program as the application that owns the subscription.
    fn run_as_owner(&self, case: &str, url: &str, extra: Value) -> Result<Value, Failed> {
        let mut inputs = json!({
            "tenant": self.test_clients["tenant"],
            "client": self.test_clients["secret"]["clientId"],
            "client_secret": self.test_clients["secret"]["clientSecret"],
            "identity_url": url,
            "identity_id": self.identity,
        });
        if let Value::Object(extra) = extra {
            for (name, value) in extra {
                inputs[name] = value;
            }
        }
        self.program.run_case(case, &inputs).map_err(failed_with_causes)
    }

    /// Obtains the credential of the identity, and uses it as `extra` says.
    fn issue_credential(&self, url: &str, extra: Value) -> Result<Value, Failed> {
        let issued = self.run_as_owner("user-assigned", url, extra)?;
        expect(&issued, "/client_id", &*self.client_id)?;
        Ok(issued)
    }
}

/// The credential signs in, its identity may send its request to ARM, and the secret in Key Vault has the
/// renewal times in its tags.
fn credential_signs_in_and_is_stored(provider: &ResourceProvider<'_>) -> Result<(), Failed> {
    let vault = text(&provider.test_clients, "/vaultHost")?;
    let name = format!("/vaults/{}", vault.split('.').next().unwrap_or_default());
    let vault_id = provider.resources.iter().find(|id| id.ends_with(&name));
    let owner = text(&provider.test_clients, "/secret/clientId")?;
    let vault_id = vault_id.ok_or("the vault is no resource")?;
    provider.assign_role(owner, "Key Vault Secrets Officer", vault_id)?;
    let extra = json!({
        "call": format!("https://management.azure.com{}", provider.granted_path),
        "vault": format!("https://{vault}"),
    });
    let issued = provider.issue_credential(&provider.identity_url()?, extra)?;
    expect(&issued, "/resource_id", &*provider.identity)?;
    if !matches!(issued["arm_status"].as_u64(), Some(200 | 404)) {
        return Err(format!("the request to ARM was denied: {issued}").into());
    }
    expect(&issued, "/stored/name", "uamsi-conformance")?;
    expect(&issued, "/stored/renew_after", text(&issued, "/renew_after")?)?;
    expect(&issued, "/stored/cannot_renew_after", text(&issued, "/cannot_renew_after")?)?;
    expect(&issued, "/stored/expires", text(&issued, "/not_after")?)?;
    expect(&issued, "/stored/client_id", &*provider.client_id)?;
    let current = provider.run_as_owner("renewal", text(&issued, "/secret_url")?, Value::Null)?;
    expect(&current, "/not_before", text(&issued, "/not_before")?)
}

/// A resource provider without a role gets no credential; Managed Identity Operator suffices.
fn role_is_required(provider: &ResourceProvider<'_>) -> Result<(), Failed> {
    let client = text(&provider.test_clients, "/certificate/clientId")?;
    let certificate = provider.azure.directory().join("provider.pem");
    let pem = text(&provider.test_clients, "/certificate/certificatePem")?;
    fs::write(&certificate, pem).map_err(failed_with_causes)?;
    let as_other = json!({ "client": client, "client_secret": "", "certificate": certificate });
    let url = provider.identity_url()?;
    let denied = provider.run_as_owner("user-assigned", &url, as_other.clone())?;
    expect_rejected_by(&denied, "data plane", 403, "AuthorizationFailed")?;
    provider.assign_role(client, "Managed Identity Operator", &provider.identity)?;
    provider.issue_credential(&url, as_other).map(drop)
}

fn expired_credential_is_refused(provider: &ResourceProvider<'_>) -> Result<(), Failed> {
    let issued = provider.issue_credential(&provider.identity_url()?, Value::Null)?;
    let fault = json!({ "component": provider.component.name(), "fault": "expired" });
    provider.control("drills", &fault)?;
    let rejected = provider.run_as_owner("renewal", text(&issued, "/secret_url")?, Value::Null)?;
    expect_rejected_by(&rejected, "token service", 401, "AADSTS1000502")
}

/// The credential changes after `renew_after`. Half a year after the last one, only a new URL returns
/// another.
fn credential_is_renewed_until_the_url_ends(provider: &ResourceProvider<'_>) -> Result<(), Failed> {
    let url = provider.identity_url()?;
    let first = provider.issue_credential(&url, Value::Null)?;
    provider.advance_days(46)?;
    let second = provider.issue_credential(&url, Value::Null)?;
    // Times of RFC 3339 in UTC.
    if text(&first, "/not_before")? >= text(&second, "/not_before")? {
        return Err(format!("the credential was not renewed: {second}").into());
    }
    provider.advance_days(181)?;
    let ended = provider.run_as_owner("user-assigned", &url, Value::Null)?;
    expect_rejected_by(&ended, "data plane", 403, "IdentityUrlExpired")?;
    provider.issue_credential(&provider.identity_url()?, Value::Null).map(drop)
}

/// Checks that a service returned an error with this status and code.
fn expect_rejected_by(
    answer: &Value,
    service: &str,
    status: u16,
    code: &str,
) -> Result<(), Failed> {
    expect(answer, "/refused_by", service)?;
    expect(answer, "/status", status)?;
    expect(answer, "/code", code)
}

fn expect(answer: &Value, pointer: &str, wanted: impl Into<Value>) -> Result<(), Failed> {
    let wanted = wanted.into();
    if answer.pointer(pointer) == Some(&wanted) {
        return Ok(());
    }
    Err(format!("{pointer} is not {wanted} in {answer}").into())
}

/// The text of a field. The error omits the value, which may contain credentials.
fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str, Failed> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.ok_or_else(|| format!("{pointer} is no text").into())
}
