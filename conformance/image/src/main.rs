//! The image, tried as a container runtime would run it: the binary in a root that holds what the
//! image holds, in a network without a way out, with a name server and an Entra ID of our own.
//!
//! `cargo xtask image try` builds the image and calls this inside a new network namespace.
//! The root has no hosts file, so a name that is reached was resolved through DNS.

mod authority;
mod endpoint;
mod name_server;
mod sandbox;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::Parser;
use libtest_mimic::{Failed, Trial};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use thiserror::Error;

use crate::authority::{Authority, client_secret};
use crate::endpoint::Endpoint;
use crate::name_server::NameServer;
use crate::sandbox::Sandbox;

/// Try the container image.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance-image")]
struct Arguments {
    /// The files of the image
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Variables of the image
    #[arg(long, value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// The commands of the image, each one
    #[arg(long = "command", value_name = "NAME", required = true)]
    commands: Vec<String>,
    /// Run only the cases whose names contain this
    filter: Option<String>,
}

/// The surroundings could not be made.
#[derive(Debug, Error)]
enum SetupError {
    #[error("the loopback device of the new network could not be switched on")]
    Loopback(#[source] io::Error),
    #[error("`ip link set lo up` ended with {0}")]
    LoopbackRefused(std::process::ExitStatus),
    #[error("no server could listen on {address}")]
    Listen {
        address: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    #[error("a certificate could not be served")]
    Serve(#[from] rustls::Error),
    #[error("a file of the sandbox could not be written")]
    File(#[from] io::Error),
}

/// Everything that the cases share.
struct World {
    arguments: Arguments,
    names: NameServer,
    entra: Endpoint,
    /// Stands for the public roots.
    public: Authority,
    /// Stands for the authority of a company.
    private: Authority,
    client_secret: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runner = libtest_mimic::Arguments {
        filter: arguments.filter.clone(),
        // One server, one certificate at a time.
        test_threads: Some(1),
        ..libtest_mimic::Arguments::default()
    };
    match World::start(arguments) {
        Ok(world) => {
            let conclusion = libtest_mimic::run(&runner, trials(&Arc::new(world)));
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            writeln!(io::stderr().lock(), "error: {}", chain(&error)).unwrap_or_default();
            ExitCode::from(2)
        }
    }
}

impl World {
    fn start(arguments: Arguments) -> Result<Self, SetupError> {
        let status = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .map_err(SetupError::Loopback)?;
        if !status.success() {
            return Err(SetupError::LoopbackRefused(status));
        }
        let public = Authority::generate("public stand-in")?;
        Ok(Self {
            names: NameServer::start()?,
            entra: Endpoint::start(public.server_config(HOST)?)?,
            private: Authority::generate("private stand-in")?,
            client_secret: client_secret()?,
            public,
            arguments,
        })
    }

    /// Asks for a token from inside the root, with the server's certificate from one authority,
    /// and returns what was seen.
    fn ask(&self, server: &Authority, private: Option<&Authority>) -> Result<Seen, SetupError> {
        self.entra.show(server.server_config(HOST)?);
        let sandbox = Sandbox::make(&self.arguments.root, self.public.pem(), &self.client_secret)?;
        let mut environment = self.arguments.environment.clone();
        if let Some(authority) = private {
            environment.push(sandbox.add_authority(authority.pem())?);
        }
        let said = sandbox.run(&environment, &["credential", "check", sandbox::CREDENTIAL])?;
        Ok(Seen { names: self.names.take(), requests: self.entra.take(), said })
    }
}

/// What reached the servers, and what the program said.
struct Seen {
    names: Vec<String>,
    requests: Vec<String>,
    said: String,
}

/// The name of Entra ID in the public cloud.
const HOST: &str = "login.microsoftonline.com";

fn trials(world: &Arc<World>) -> Vec<Trial> {
    let case = |name: &str, case: fn(&World) -> Result<(), Failed>| {
        let world = Arc::clone(world);
        Trial::test(name, move || case(&world))
    };
    let mut cases = vec![
        case("the_program_runs_in_an_empty_root", runs),
        case("its_help_lists_the_commands_of_the_image_and_no_others", lists_commands),
        case("its_public_roots_hold_the_one_that_azure_is_signed_below", holds_roots),
    ];
    if world.arguments.commands.iter().any(|name| name == "credential") {
        cases.extend([
            case("names_resolve_through_dns_without_a_hosts_file", resolves),
            case("a_private_authority_is_trusted_beside_the_public_roots", private_adds),
            case("the_public_roots_stay_trusted_beside_a_private_authority", public_stays),
            case("an_unknown_authority_is_refused", unknown_is_refused),
        ]);
    }
    cases
}

fn runs(world: &World) -> Result<(), Failed> {
    let made = Sandbox::make(&world.arguments.root, world.public.pem(), &world.client_secret);
    let sandbox = made.map_err(failed)?;
    let said = sandbox.run(&world.arguments.environment, &["--version"]).map_err(failed)?;
    expect(said.starts_with("lanyard "), &said)
}

fn lists_commands(world: &World) -> Result<(), Failed> {
    let made = Sandbox::make(&world.arguments.root, world.public.pem(), &world.client_secret);
    let said =
        made.and_then(|it| it.run(&world.arguments.environment, &["--help"])).map_err(failed)?;
    let mut listed: Vec<_> = said
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        // The second line of a description starts with more blanks.
        .filter(|name| !matches!(*name, "" | "help"))
        .collect();
    listed.sort_unstable();
    expect(listed == world.arguments.commands, &said)
}

/// The other cases put a root of their own in the place of these.
fn holds_roots(world: &World) -> Result<(), Failed> {
    let bundle = world.arguments.root.join(sandbox::ROOTS);
    let roots = CertificateDer::pem_file_iter(&bundle).map_err(failed)?;
    let roots: Vec<_> = roots.collect::<Result<_, _>>().map_err(failed)?;
    let mut store = RootCertStore::empty();
    let (_, unusable) = store.add_parsable_certificates(roots);
    expect(unusable == 0, &format!("{unusable} roots cannot be used"))?;
    let name = AZURE_ROOT.as_bytes();
    let is_azures = |root: &[u8]| root.windows(name.len()).any(|part| part == name);
    let found = store.roots.iter().any(|root| is_azures(root.subject.as_ref()));
    expect(found, &format!("{AZURE_ROOT} is not among {} roots", store.len()))
}

/// The name in the root that most names of Azure are signed below. That the right certificate bears
/// it is tested where the bundle is made.
const AZURE_ROOT: &str = "DigiCert Global Root G2";

fn resolves(world: &World) -> Result<(), Failed> {
    let seen = world.ask(&world.public, None).map_err(failed)?;
    expect(seen.names.iter().any(|name| name == HOST), &format!("asked for {:?}", seen.names))?;
    expect_token_request(&seen)
}

fn private_adds(world: &World) -> Result<(), Failed> {
    expect_token_request(&world.ask(&world.private, Some(&world.private)).map_err(failed)?)
}

fn public_stays(world: &World) -> Result<(), Failed> {
    expect_token_request(&world.ask(&world.public, Some(&world.private)).map_err(failed)?)
}

fn unknown_is_refused(world: &World) -> Result<(), Failed> {
    let seen = world.ask(&world.private, None).map_err(failed)?;
    expect(seen.requests.is_empty(), &format!("{:?} got through", seen.requests))?;
    // Refused for this reason, and for no other.
    expect(seen.said.contains("UnknownIssuer"), &seen.said)
}

/// A request for a token got through TLS.
fn expect_token_request(seen: &Seen) -> Result<(), Failed> {
    let is_for_token =
        |line: &String| line.starts_with("POST /") && line.contains("/oauth2/v2.0/token");
    expect(
        seen.requests.iter().any(is_for_token),
        &format!("requests: {:?}; the program said: {}", seen.requests, seen.said),
    )
}

fn expect(holds: bool, what_was: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what_was.into()) }
}

fn failed(error: impl Error) -> Failed {
    chain(&error).into()
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
