//! Seeds the tenants with their signing keys, and the certificate authority of managed identities.

use jiff::Timestamp;
use lanyard_emulator_state::certificates::days_after;
use lanyard_emulator_state::client_certificate::{CertificateValidityPeriod, create_authority};
use lanyard_emulator_state::directory::Tenant;
use lanyard_emulator_state::managed_identity_credential::MSI_AUTHORITY;

use super::administrator::CUSTOM_DOMAIN;
use super::{AzureSeeder, SeedError};

impl AzureSeeder<'_> {
    pub(super) fn add_tenants(&mut self) -> Result<(), SeedError> {
        for id in [&self.plan.tenant, &self.plan.vault.tenant] {
            if self.azure.directory.tenant(id.as_str()).is_none() {
                let key = self.next_rsa_key()?;
                let mut tenant = Tenant::new(id.clone(), Vec::new(), key, self.now)
                    .map_err(|error| SeedError::Certificate(error.source))?;
                tenant.domains = vec![tenant.initial_domain()];
                if *id == self.plan.tenant {
                    tenant.domains.push(CUSTOM_DOMAIN.to_owned());
                }
                self.azure.directory.tenants.push(tenant);
            }
        }
        if !self.azure.directory.authorities.contains_key(MSI_AUTHORITY) {
            let (key, serial) = (self.next_rsa_key()?, self.ids.next_uuid());
            let authority =
                create_authority(MSI_AUTHORITY, key, serial, validity_of_years(self.now, 10))?;
            self.azure.directory.authorities.insert(MSI_AUTHORITY.to_owned(), authority);
        }
        Ok(())
    }
}

/// Returns a validity period that started a day ago and ends in `years` years.
pub(super) fn validity_of_years(now: Timestamp, years: i64) -> CertificateValidityPeriod {
    CertificateValidityPeriod {
        not_before: days_after(now, -1),
        not_after: days_after(now, 365 * years),
    }
}
