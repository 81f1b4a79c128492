//! A real subscription, configured through environment variables.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_clock::ErrorHint;
use thiserror::Error;

use crate::client_program::ClientInputs;
use crate::sign_in_method::SignInMethod;

/// Environment variables that every live suite requires.
const REQUIRED_VARIABLES: [&str; 6] = [
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_RESOURCE_GROUP",
    "AZURE_KEY_VAULT_URL",
    "AZURE_SECRET_NAME",
];

/// The sign-in methods, each with the variable that enables it.
const SIGN_IN_VARIABLES: [(SignInMethod, &str); 4] = [
    (SignInMethod::Certificate, "AZURE_CLIENT_CERTIFICATE_PATH"),
    (SignInMethod::Secret, "AZURE_CLIENT_SECRET"),
    (SignInMethod::Federated, "AZURE_FEDERATED_TOKEN_FILE"),
    (SignInMethod::ManagedIdentity, "AZURE_MANAGED_IDENTITY_CLIENT_ID"),
];

/// The variable with a credential file in the format of msi-dataplane, for the suite `go`.
const CREDENTIAL_FILE_VARIABLE: &str = "AZURE_MSI_CREDENTIAL_FILE";

/// The environment does not describe a subscription.
#[derive(Debug, Error)]
#[error("a live suite needs credentials, and these variables are not set: {}", missing.join(", "))]
pub(crate) struct LiveSubscriptionError {
    missing: Vec<&'static str>,
}

impl ErrorHint for LiveSubscriptionError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let ways =
            SIGN_IN_VARIABLES.map(|(holder, variable)| format!("{variable} ({})", holder.name()));
        let hint = format!(
            "name a tenant, a client, and a resource group and a vault secret that the client may \
             read; then one or more of {}, and {CREDENTIAL_FILE_VARIABLE} for the suite `go`. Nothing is \
             created, changed or deleted.",
            ways.join(", ")
        );
        Some(hint.into())
    }
}

/// The environment variables of a subscription, including credentials, which `Debug` hides.
pub(crate) struct LiveSubscription(BTreeMap<String, String>);

lanyard_vocabulary::debug_text!(LiveSubscription, "LiveSubscription(***)");

impl LiveSubscription {
    /// Validates the variables and reports all missing ones.
    pub(crate) fn parse(
        environment: BTreeMap<String, String>,
    ) -> Result<Self, LiveSubscriptionError> {
        let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
        let mut missing: Vec<&'static str> =
            REQUIRED_VARIABLES.into_iter().filter(|name| !is_set(name)).collect();
        if !SIGN_IN_VARIABLES.iter().any(|(_, variable)| is_set(variable))
            && !is_set(CREDENTIAL_FILE_VARIABLE)
        {
            missing.push("AZURE_CLIENT_SECRET or another way to sign in");
        }
        if missing.is_empty() {
            Ok(Self(environment))
        } else {
            Err(LiveSubscriptionError { missing })
        }
    }

    /// The inputs of a client; `None` if the environment has no credential for this method.
    pub(crate) fn inputs(&self, holder: SignInMethod, scope: &str) -> Option<ClientInputs> {
        let (_, variable) = SIGN_IN_VARIABLES.iter().find(|(method, _)| *method == holder)?;
        let credential = self.variable(variable);
        if credential.is_empty() {
            return None;
        }
        let of = |method: SignInMethod| {
            if method == holder { credential.clone() } else { String::new() }
        };
        let managed = of(SignInMethod::ManagedIdentity);
        Some(ClientInputs {
            tenant: self.variable("AZURE_TENANT_ID"),
            client: if managed.is_empty() { self.variable("AZURE_CLIENT_ID") } else { managed },
            certificate: of(SignInMethod::Certificate),
            send_certificate_chain: true,
            client_secret: of(SignInMethod::Secret),
            token_file: of(SignInMethod::Federated),
            scope: scope.to_owned(),
            subscription: self.variable("AZURE_SUBSCRIPTION_ID"),
            resource_group: self.variable("AZURE_RESOURCE_GROUP"),
            vault: self.variable("AZURE_KEY_VAULT_URL"),
            secret_name: self.variable("AZURE_SECRET_NAME"),
            ..ClientInputs::default()
        })
    }

    /// The credential file for msi-dataplane.
    pub(crate) fn credential_file(&self) -> Option<String> {
        Some(self.variable(CREDENTIAL_FILE_VARIABLE)).filter(|path| !path.is_empty())
    }

    /// An ARM call that the client is allowed to make.
    pub(crate) fn granted_call(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}?api-version=2021-04-01",
            self.variable("AZURE_SUBSCRIPTION_ID"),
            self.variable("AZURE_RESOURCE_GROUP")
        )
    }

    fn variable(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete_environment() -> BTreeMap<String, String> {
        REQUIRED_VARIABLES
            .into_iter()
            .chain(["AZURE_CLIENT_SECRET"])
            .map(|name| (name.to_owned(), format!("value of {name}")))
            .collect()
    }

    #[test]
    fn error_lists_every_missing_variable() {
        let error = LiveSubscription::parse(BTreeMap::new()).expect_err("nothing is set");
        for name in REQUIRED_VARIABLES.into_iter().chain(["AZURE_CLIENT_SECRET"]) {
            assert!(error.to_string().contains(name), "{error}");
        }
        for name in REQUIRED_VARIABLES {
            let mut environment = complete_environment();
            environment.insert(name.to_owned(), String::new());
            let error = LiveSubscription::parse(environment).expect_err("one is empty");
            assert_eq!(error.missing, [name]);
        }
    }

    #[test]
    fn only_configured_sign_in_methods_have_inputs() {
        let live = LiveSubscription::parse(complete_environment()).expect("it is complete");
        let inputs = live.inputs(SignInMethod::Secret, "scope").expect("a secret is set");
        assert_eq!(inputs.client_secret, "value of AZURE_CLIENT_SECRET");
        assert_eq!(inputs.client, "value of AZURE_CLIENT_ID");
        for other in
            [SignInMethod::Certificate, SignInMethod::Federated, SignInMethod::ManagedIdentity]
        {
            assert!(live.inputs(other, "scope").is_none(), "{other:?}");
        }
        assert_eq!(live.credential_file(), None);
    }

    #[test]
    fn debug_hides_credentials() {
        let live = LiveSubscription::parse(complete_environment()).expect("it is complete");
        assert_eq!(format!("{live:?}"), "LiveSubscription(***)");
    }
}
