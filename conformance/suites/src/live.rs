//! A real subscription, described by the environment.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::ground::Holder;
use crate::program::Inputs;

/// What every live suite needs.
const REQUIRED: [&str; 6] = [
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_RESOURCE_GROUP",
    "AZURE_KEY_VAULT_URL",
    "AZURE_SECRET_NAME",
];

/// The ways to sign in, each with the variable that makes it possible.
const WAYS: [(Holder, &str); 4] = [
    (Holder::Certificate, "AZURE_CLIENT_CERTIFICATE_PATH"),
    (Holder::Secret, "AZURE_CLIENT_SECRET"),
    (Holder::Federated, "AZURE_FEDERATED_TOKEN_FILE"),
    (Holder::ManagedIdentity, "AZURE_MANAGED_IDENTITY_CLIENT_ID"),
];

/// A credential file in the form of msi-dataplane, for the witness.
const CREDENTIAL_FILE: &str = "AZURE_MSI_CREDENTIAL_FILE";

/// The environment does not describe a subscription.
#[derive(Debug, Error)]
#[error("a live suite needs credentials, and these variables are not set: {}", missing.join(", "))]
pub(crate) struct LiveError {
    missing: Vec<&'static str>,
}

impl LiveError {
    /// What to set.
    pub(crate) fn hint() -> String {
        let ways = WAYS.map(|(holder, variable)| format!("{variable} ({})", holder.name()));
        format!(
            "name a tenant, a client, and a resource group and a vault secret that the client may \
             read; then one or more of {}, and {CREDENTIAL_FILE} for the suite `go`. Nothing is \
             created, changed or deleted.",
            ways.join(", ")
        )
    }
}

/// A subscription; credentials stay where the environment has them until a client needs them.
pub(crate) struct Live(BTreeMap<String, String>);

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Live(***)")
    }
}

impl Live {
    /// Reads the variables, all problems at once.
    pub(crate) fn parse(environment: BTreeMap<String, String>) -> Result<Self, LiveError> {
        let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
        let mut missing: Vec<&'static str> =
            REQUIRED.into_iter().filter(|name| !is_set(name)).collect();
        if !WAYS.iter().any(|(_, variable)| is_set(variable)) && !is_set(CREDENTIAL_FILE) {
            missing.push("AZURE_CLIENT_SECRET or another way to sign in");
        }
        if missing.is_empty() { Ok(Self(environment)) } else { Err(LiveError { missing }) }
    }

    /// The inputs of a client; nothing if the environment has no such credential.
    pub(crate) fn inputs(&self, holder: Holder, scope: &str) -> Option<Inputs> {
        let (_, variable) = WAYS.iter().find(|(way, _)| *way == holder)?;
        let credential = self.value(variable);
        if credential.is_empty() {
            return None;
        }
        let of = |way: Holder| if way == holder { credential.clone() } else { String::new() };
        let managed = of(Holder::ManagedIdentity);
        Some(Inputs {
            tenant: self.value("AZURE_TENANT_ID"),
            client: if managed.is_empty() { self.value("AZURE_CLIENT_ID") } else { managed },
            certificate: of(Holder::Certificate),
            send_certificate_chain: true,
            client_secret: of(Holder::Secret),
            token_file: of(Holder::Federated),
            scope: scope.to_owned(),
            subscription: self.value("AZURE_SUBSCRIPTION_ID"),
            resource_group: self.value("AZURE_RESOURCE_GROUP"),
            vault: self.value("AZURE_KEY_VAULT_URL"),
            secret_name: self.value("AZURE_SECRET_NAME"),
        })
    }

    /// The file for msi-dataplane.
    pub(crate) fn credential_file(&self) -> Option<String> {
        Some(self.value(CREDENTIAL_FILE)).filter(|path| !path.is_empty())
    }

    /// An ARM call that the client may make.
    pub(crate) fn granted_call(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}?api-version=2021-04-01",
            self.value("AZURE_SUBSCRIPTION_ID"),
            self.value("AZURE_RESOURCE_GROUP")
        )
    }

    fn value(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> BTreeMap<String, String> {
        REQUIRED
            .into_iter()
            .chain(["AZURE_CLIENT_SECRET"])
            .map(|name| (name.to_owned(), format!("value of {name}")))
            .collect()
    }

    #[test]
    fn every_variable_that_is_missing_is_named() {
        let error = Live::parse(BTreeMap::new()).expect_err("nothing is set");
        for name in REQUIRED.into_iter().chain(["AZURE_CLIENT_SECRET"]) {
            assert!(error.to_string().contains(name), "{error}");
        }
        for name in REQUIRED {
            let mut environment = complete();
            environment.insert(name.to_owned(), String::new());
            let error = Live::parse(environment).expect_err("one is empty");
            assert_eq!(error.missing, [name]);
        }
    }

    #[test]
    fn only_the_ways_that_are_set_have_inputs() {
        let live = Live::parse(complete()).expect("it is complete");
        let inputs = live.inputs(Holder::Secret, "scope").expect("a secret is set");
        assert_eq!(inputs.client_secret, "value of AZURE_CLIENT_SECRET");
        assert_eq!(inputs.client, "value of AZURE_CLIENT_ID");
        for other in [Holder::Certificate, Holder::Federated, Holder::ManagedIdentity] {
            assert!(live.inputs(other, "scope").is_none(), "{other:?}");
        }
        assert_eq!(live.credential_file(), None);
    }

    #[test]
    fn credentials_are_not_printed() {
        let live = Live::parse(complete()).expect("it is complete");
        assert_eq!(format!("{live:?}"), "Live(***)");
    }
}
