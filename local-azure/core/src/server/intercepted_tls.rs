//! The TLS configuration of intercepted connections: a certificate for each Azure host, and certificates with
//! injected faults.

use std::sync::{Arc, OnceLock};

use lanyard_emulator_state::fault_rules::CertificateProblem;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{
    ClientHello, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions,
};
use rustls::sign::CertifiedKey;

use crate::authority::LocalAuthority;
use crate::engine::EmulatorEngine;

/// The maximum number of TLS sessions that clients can resume.
const MAX_SESSIONS: usize = 256;

/// The configuration for names of Azure.
pub(super) fn tls_config(engine: &Arc<EmulatorEngine>) -> Result<ServerConfig, rustls::Error> {
    let resolver =
        InterceptionCertificates { engine: Arc::clone(engine), foreign_authority: OnceLock::new() };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(InterceptedSessions {
        engine: Arc::clone(engine),
        sessions: ServerSessionMemoryCache::new(MAX_SESSIONS),
    });
    Ok(config)
}

/// Selects the certificate for the server name of a handshake.
struct InterceptionCertificates {
    engine: Arc<EmulatorEngine>,
    /// An authority that no client trusts, created for the first fault that needs it.
    foreign_authority: OnceLock<Option<LocalAuthority>>,
}

lanyard_vocabulary::debug_fields!(InterceptionCertificates);

impl InterceptionCertificates {
    fn faulty_certificate(
        &self,
        host: &str,
        problem: CertificateProblem,
    ) -> Option<Arc<CertifiedKey>> {
        const DAYS: (i64, i64) = (-1, 90);
        let authority = &self.engine.authority;
        match problem {
            CertificateProblem::Expired => authority.expired_leaf(host).ok(),
            CertificateProblem::WrongHost => {
                authority.issue_leaf("wrong.vault.azure.net", DAYS).ok()
            }
            CertificateProblem::MissingIntermediate => {
                authority.leaf_of_intermediate(&self.engine.clouds, host, DAYS).ok()
            }
            CertificateProblem::UnknownAuthority => {
                let foreign = self
                    .foreign_authority
                    .get_or_init(|| LocalAuthority::generate_untrusted(&self.engine.clouds).ok());
                foreign.as_ref()?.issue_leaf(host, DAYS).ok()
            }
            CertificateProblem::Alert => None,
        }
    }
}

impl ResolvesServerCert for InterceptionCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name()?.to_ascii_lowercase();
        match self.engine.match_handshake(&host) {
            Some(problem) => self.faulty_certificate(&host, problem),
            None => self.engine.authority.leaf_for_server_name(&self.engine.clouds, &host),
        }
    }
}

/// The sessions that clients can resume. A resumed session sends no certificate, so none is resumed while a
/// fault rule changes certificates.
struct InterceptedSessions {
    engine: Arc<EmulatorEngine>,
    sessions: Arc<ServerSessionMemoryCache>,
}

lanyard_vocabulary::debug_fields!(InterceptedSessions);

impl StoresServerSessions for InterceptedSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.engine.has_handshake_faults() { None } else { self.sessions.get(key) }
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.engine.has_handshake_faults() { None } else { self.sessions.take(key) }
    }

    fn can_cache(&self) -> bool {
        true
    }
}
