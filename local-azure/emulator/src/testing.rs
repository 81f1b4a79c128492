//! Seeded states for tests, and a fixture that calls the engine without sockets.

pub mod arm_fixture;
pub mod authorization_fixture;
pub mod seeded_state;

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lanyard_clock::ManualClock;
use lanyard_emulator_core::authority::LocalAuthority;
use lanyard_emulator_core::engine::{EmulatorEngine, State};
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::request::{RequestScheme, ServiceReply, ServiceRequest};
use uuid::Uuid;

use crate::services::services;
// For programs that use this crate only.
pub use lanyard_emulator_core::ingress::Ingress;
pub use lanyard_emulator_state::azure_state::AzureState;
pub use lanyard_emulator_state::testing::*;

/// The engine of a state, called without sockets.
#[derive(Debug)]
pub struct EngineFixture {
    pub engine: EmulatorEngine,
    pub clock: ManualClock,
}

impl EngineFixture {
    pub fn new(azure: AzureState) -> Self {
        Self::with_clouds(AzureClouds::new(None, 0), azure)
    }

    pub fn with_clouds(clouds: AzureClouds, azure: AzureState) -> Self {
        let clock = ManualClock::starting_at(start_time());
        let authority = Arc::new(LocalAuthority::generate(&clouds).unwrap());
        let ids = IdGenerator::seeded(Uuid::from_u128(7));
        let engine = EmulatorEngine::new(
            Arc::new(clock.clone()),
            authority,
            clouds,
            services(),
            State::new(azure, ids),
            None,
        );
        Self { engine, clock }
    }

    pub fn send_request(
        &self,
        ingress: Ingress,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> ServiceReply {
        let request = self.build_request(ingress, method, url, headers, body);
        self.engine.handle_request(&request, ingress).reply
    }

    /// The maximum size of a large body with this head, or the status of the rejection.
    pub fn admit_large_body(
        &self,
        ingress: Ingress,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<usize, u16> {
        let request = self.build_request(ingress, method, url, headers, "");
        let admitted = self.engine.admit_large_body(&request, ingress);
        admitted.map_err(|answer| answer.reply.status.as_u16())
    }

    pub fn build_request(
        &self,
        ingress: Ingress,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> ServiceRequest {
        let url = url::Url::parse(url).unwrap();
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name: HeaderName = name.parse().unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            })
            .collect();
        ServiceRequest {
            method: method.clone(),
            scheme: if ingress == Ingress::Tunnel {
                RequestScheme::Https
            } else {
                RequestScheme::Http
            },
            host: url.host_str().unwrap().to_owned(),
            client_ip: Some(Ipv4Addr::LOCALHOST.into()),
            port: url.port_or_known_default().unwrap(),
            path: self.engine.clouds.request_path(url.host_str().unwrap(), url.path()),
            query: url.query_pairs().into_owned().collect(),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    pub fn get(&self, ingress: Ingress, url: &str, headers: &[(&str, &str)]) -> ServiceReply {
        self.send_request(ingress, &Method::GET, url, headers, "")
    }

    /// Posts a token request to the v2.0 endpoint of a host.
    pub fn request_token_at_host(
        &self,
        host: &str,
        tenant: &str,
        fields: &[(&str, &str)],
    ) -> ServiceReply {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("grant_type", "client_credentials"),
                ("scope", "https://vault.azure.net/.default"),
            ])
            .extend_pairs(fields)
            .finish();
        let url = format!("https://{host}/{tenant}/oauth2/v2.0/token");
        self.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body)
    }

    pub fn request_token(&self, fields: &[(&str, &str)]) -> ServiceReply {
        self.request_token_at_host(LOGIN, TENANT, fields)
    }

    /// Requests a token with an assertion.
    pub fn request_token_with_assertion(&self, client: &str, assertion: &str) -> ServiceReply {
        self.request_token(&[
            ("client_id", client),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", assertion),
        ])
    }
}
