//! Connections to providers: made when they are needed, kept, and never to somebody untrusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::SocketProviders;
use super::call_error::ProviderCallError;
use super::trusted_socket::{self, SocketConnectError};
use crate::provider::name::ProviderName;

/// How long a call waits for somebody to listen on a socket that is there.
const READY_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl SocketProviders {
    /// The connection to a provider: the one that is there, or a new one.
    pub(super) async fn channel(&self, name: &ProviderName) -> Result<Channel, ProviderCallError> {
        let path = trusted_socket::find_socket(name, &self.settings.directories)
            .ok_or(ProviderCallError::NotFound)?;
        if let Some((known, channel)) = self.channels.lock().get(name)
            && *known == path
        {
            return Ok(channel.clone());
        }
        let stream = self.connect_when_listening(&path).await?;
        let channel = channel_from_stream(stream, &path);
        self.channels.lock().insert(name.clone(), (path, channel.clone()));
        Ok(channel)
    }

    /// A provider that starts makes its socket before it listens, and one that was killed leaves
    /// its socket behind: both are waited for.
    async fn connect_when_listening(&self, path: &Path) -> Result<UnixStream, SocketConnectError> {
        let since = self.clock.monotonic();
        loop {
            match trusted_socket::connect_trusted(path).await {
                Err(SocketConnectError::NotListening { .. })
                    if self.clock.monotonic().saturating_sub(since) < READY_WAIT =>
                {
                    self.clock.sleep(POLL_INTERVAL).await;
                }
                opened => return opened,
            }
        }
    }
}

/// A channel that begins with this connection. When it breaks, the next one is checked as the
/// first one was.
fn channel_from_stream(stream: UnixStream, path: &Path) -> Channel {
    let first = Arc::new(Mutex::new(Some(stream)));
    let path: Arc<PathBuf> = Arc::new(path.to_owned());
    let connector = service_fn(move |_| {
        let (first, path) = (Arc::clone(&first), Arc::clone(&path));
        async move {
            let first = first.lock().take();
            let stream = match first {
                Some(stream) => stream,
                None => trusted_socket::connect_trusted(&path).await?,
            };
            Ok::<_, SocketConnectError>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}
