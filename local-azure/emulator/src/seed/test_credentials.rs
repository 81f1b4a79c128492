//! The credentials with which tools sign in to the emulator.

use lanyard_emulator_state::identity_registry::TestClients;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_vocabulary::{EntraClientId, EntraTenantId, SubscriptionId};

/// The credentials of the seeded administrator and of the application with a client secret. Both
/// are Owner of the subscription.
#[derive(Debug, Clone)]
pub struct TestCredentials {
    pub tenant: EntraTenantId,
    pub subscription: SubscriptionId,
    /// The client id of the application.
    pub client_id: EntraClientId,
    client_secret: RedactedText,
    /// The user principal name of the administrator.
    pub user_principal_name: String,
    user_password: RedactedText,
}

impl TestCredentials {
    /// The secret of the application.
    pub fn client_secret(&self) -> &str {
        self.client_secret.expose()
    }

    /// The password of the administrator.
    pub fn user_password(&self) -> &str {
        self.user_password.expose()
    }
}

impl From<&TestClients> for TestCredentials {
    fn from(clients: &TestClients) -> Self {
        Self {
            tenant: clients.tenant.clone(),
            subscription: clients.subscription.clone(),
            client_id: clients.secret_client,
            client_secret: clients.secret.clone(),
            user_principal_name: clients.user_principal_name.clone(),
            user_password: clients.user_password.clone(),
        }
    }
}
