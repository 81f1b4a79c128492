//! Secrets, role assignments and resources that the benchmark stores in a local Azure, and requests for them.

use std::ops::Range;
use std::sync::Arc;

use http::Method;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use uuid::Uuid;

use super::azure_client::{BearerHeader, SubscriptionOwner, role_assignment_body};
use super::https_connection::{HttpsTarget, PreparedRequest};
use super::load_generator::{
    RequestNumber, RequestSource, requests_in_turn, require_success, send_all,
};
use super::server_process::LanyardServer;

const VAULT_NAME: &str = "lanyard-benchmark";
const VAULT_HOST: &str = "lanyard-benchmark.vault.azure.net";
const RESOURCE_GROUP: &str = "benchmark";
const SECRETS_OFFICER: &str = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7";
const SECRETS_USER: &str = "4633458b-17de-408a-b874-0445c86b69e6";
/// The number of secrets on a page, so that the smallest list has two pages.
const PAGE_SIZE: usize = 5;

/// A vault and a resource group of the benchmark, and the tokens for them.
#[derive(Debug)]
pub(super) struct BenchmarkObjects {
    owner: SubscriptionOwner,
    pub(super) vault: HttpsTarget,
    vault_token: BearerHeader,
    /// The resource id of the group.
    group: String,
    /// The resource id of the vault.
    vault_id: String,
}

impl BenchmarkObjects {
    /// Creates the group and the vault, whose secrets the owner may read and write.
    pub(super) async fn create(server: &LanyardServer) -> Result<Self, Failed> {
        let owner = SubscriptionOwner::sign_in(server).await?;
        let group = format!("{}/resourceGroups/{RESOURCE_GROUP}", owner.subscription);
        let location = json!({ "location": "westeurope" });
        owner.put_resource(&group, "2021-04-01", &location).await?;
        let vault_id = format!("{group}/providers/Microsoft.KeyVault/vaults/{VAULT_NAME}");
        let vault = json!({
            "location": "westeurope",
            "properties": {
                "tenantId": owner.tenant,
                "sku": { "family": "A", "name": "standard" },
                "enableRbacAuthorization": true,
            },
        });
        owner.put_resource(&vault_id, "2023-07-01", &vault).await?;
        owner.assign_own_role(&vault_id, SECRETS_OFFICER).await?;
        let vault_token = owner.vault_token(server).await?;
        Ok(Self { vault: server.target(VAULT_HOST)?, vault_token, owner, group, vault_id })
    }

    /// The target of requests to ARM.
    pub(super) fn arm(&self) -> &HttpsTarget {
        &self.owner.arm
    }

    pub(super) async fn add_secrets(&self, numbers: Range<usize>) -> Result<(), Failed> {
        let requests = numbers.map(|number| {
            let body = json!({ "value": secret_value(number) });
            self.vault_token.json_request(Method::PUT, &secret_path(number), &body)
        });
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        send_all(&self.vault, requests).await
    }

    /// Adds user-assigned identities, each with its principal in the directory.
    pub(super) async fn add_identities(&self, numbers: Range<usize>) -> Result<(), Failed> {
        let body = json!({ "location": "westeurope", "tags": { "purpose": "benchmark" } });
        let requests = numbers.map(|number| {
            self.owner.arm_token.json_request(Method::PUT, &self.identity_path(number), &body)
        });
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        send_all(self.arm(), requests).await
    }

    /// Adds role assignments: one half for the owner, each at the scope of another secret, the other half for
    /// other principals at the scope of the vault.
    pub(super) async fn add_assignments(&self, numbers: Range<usize>) -> Result<(), Failed> {
        let requests = numbers.map(|number| {
            let name = numbered_uuid(ASSIGNMENT_NAMES, number);
            if number % 2 == 0 {
                let scope = format!("{}/secrets/{}", self.vault_id, secret_name(number));
                self.assignment_request(Method::PUT, &scope, name, &self.owner.object_id)
            } else {
                let principal = numbered_uuid(PRINCIPALS, number).to_string();
                self.assignment_request(Method::PUT, &self.vault_id, name, &principal)
            }
        });
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        send_all(self.arm(), requests).await
    }

    /// `GET` of the secrets 0 to `count` - 1.
    pub(super) fn get_secrets(&self, count: usize) -> Result<RequestSource, Failed> {
        let count = count.min(DISTINCT_REQUESTS);
        let requests =
            (0..count).map(|number| self.vault_token.request(Method::GET, &secret_path(number)));
        Ok(requests_in_turn(requests.collect::<Result<_, _>>()?))
    }

    /// `GET` of one secret.
    pub(super) fn get_secret(&self) -> Result<PreparedRequest, Failed> {
        self.vault_token.request(Method::GET, &secret_path(0))
    }

    /// `GET` of the second page of the secrets.
    pub(super) async fn list_secrets(&self) -> Result<RequestSource, Failed> {
        let path = format!("/secrets?api-version=7.4&maxresults={PAGE_SIZE}");
        let request = self.vault_token.request(Method::GET, &path)?;
        let response = self.vault.send(&request).await?;
        require_success(&request, &response)?;
        let page: Value = serde_json::from_slice(&response.body)?;
        let next = page["nextLink"].as_str().ok_or("the list has one page only")?;
        let next = next.parse::<http::Uri>()?;
        let path = next.path_and_query().ok_or("the link to the second page has no path")?;
        Ok(requests_in_turn(vec![self.vault_token.request(Method::GET, path.as_str())?]))
    }

    /// `GET` of the identities 0 to `count` - 1.
    pub(super) fn get_identities(&self, count: usize) -> Result<RequestSource, Failed> {
        let count = count.min(DISTINCT_REQUESTS);
        let requests = (0..count)
            .map(|number| self.owner.arm_token.request(Method::GET, &self.identity_path(number)));
        Ok(requests_in_turn(requests.collect::<Result<_, _>>()?))
    }

    /// `PUT` and `DELETE` of a role assignment in turn, so that the number of assignments stays the same.
    pub(super) fn put_and_delete_assignments(
        &self,
        connections: usize,
    ) -> Result<RequestSource, Failed> {
        let requests = (0..connections).map(|connection| {
            let name = numbered_uuid(CHANGING_ASSIGNMENT_NAMES, connection);
            let principal = numbered_uuid(CHANGING_PRINCIPALS, connection).to_string();
            let request =
                |method| self.assignment_request(method, &self.vault_id, name, &principal);
            Ok([request(Method::PUT)?, request(Method::DELETE)?])
        });
        let requests: Vec<_> = requests.collect::<Result<_, Failed>>()?;
        Ok(Arc::new(move |number: RequestNumber| {
            requests[number.connection][number.request % 2].clone()
        }))
    }

    fn assignment_request(
        &self,
        method: Method,
        scope: &str,
        name: Uuid,
        principal: &str,
    ) -> Result<PreparedRequest, Failed> {
        let path = format!(
            "{scope}/providers/Microsoft.Authorization/roleAssignments/{name}\
             ?api-version=2022-04-01"
        );
        if method == Method::DELETE {
            return self.owner.arm_token.request(method, &path);
        }
        let body = role_assignment_body(&self.owner.subscription, SECRETS_USER, principal);
        self.owner.arm_token.json_request(method, &path, &body)
    }

    fn identity_path(&self, number: usize) -> String {
        format!(
            "{}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/identity-{number:06}\
             ?api-version=2024-11-30",
            self.group
        )
    }
}

/// The maximum number of different objects that one load requests.
const DISTINCT_REQUESTS: usize = 1_000;

/// Namespaces of [`numbered_uuid`].
const ASSIGNMENT_NAMES: u16 = 1;
const PRINCIPALS: u16 = 2;
const CHANGING_ASSIGNMENT_NAMES: u16 = 3;
const CHANGING_PRINCIPALS: u16 = 4;

/// A UUID of its own for each namespace and number.
fn numbered_uuid(namespace: u16, number: usize) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{namespace} {number}").as_bytes())
}

fn secret_name(number: usize) -> String {
    format!("secret-{number:06}")
}

fn secret_path(number: usize) -> String {
    format!("/secrets/{}?api-version=7.4", secret_name(number))
}

/// A value of 64 characters, like a generated password.
fn secret_value(number: usize) -> String {
    let half = |part: usize| numbered_uuid(u16::MAX, 2 * number + part).simple().to_string();
    half(0) + &half(1)
}
