//! The life of the server: bind, serve, drain, end.

use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use volley_engine::EngineHandle;

use crate::app::{App, router};
use crate::error::{Error, Result};
use crate::loading::Loading;
use crate::options::ServerOptions;
use crate::patience::Patient;
use crate::served::ServedModel;

/// Most header lines of a request; more are refused with status 431.
const MAX_HEADERS: usize = 100;
/// Most bytes of a request's head; more are refused with status 431.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most bytes that the system keeps of what a client has not read yet (Linux doubles it for its
/// own needs). Left alone it keeps megabytes, and tells late that some of them were taken.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// A server with an open port, on which it answers that the model is loading.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    loading: Option<Loading>,
}

impl Server {
    /// Opens the port; 0 takes a free one.
    pub fn bind(host: &str, port: u16) -> Result<Self> {
        let open = || -> std::io::Result<Self> {
            let listener = TcpListener::bind((host, port))?;
            listener.set_nonblocking(true)?;
            // Connections have what their listener has.
            SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER_BYTES)?;
            let address = listener.local_addr()?;
            let loading = Loading::begin(listener.try_clone()?);
            Ok(Self {
                listener,
                address,
                loading: Some(loading),
            })
        };
        open().map_err(|source| Error::Bind {
            address: format!("{host}:{port}"),
            source,
        })
    }

    /// The address, with the port chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The model is there: requests are no longer refused, but wait for [`run`](Self::run).
    pub fn loaded(&mut self) {
        self.loading = None;
    }

    /// Serves until SIGINT or SIGTERM. Then no more requests are taken, running answers may end
    /// within the limit, and those left are cut off with an error; a second signal cuts at once.
    /// A lost engine ends it too, with an error.
    pub fn run(self, model: ServedModel, options: ServerOptions) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let engine = model.engine.clone();
        let result = runtime.block_on(self.serve(model, options));
        runtime.shutdown_timeout(Duration::from_secs(1));
        match engine.failure() {
            Some(reason) => Err(Error::EngineLost(reason.to_owned())),
            None => result,
        }
    }

    async fn serve(mut self, model: ServedModel, options: ServerOptions) -> Result<()> {
        self.loaded();
        if options.keys.is_empty() && !self.address.ip().is_loopback() {
            tracing::warn!(
                "anyone who reaches {} may ask: there is no API key",
                self.address
            );
        }
        let drain_limit = options.drain_limit;
        let app = Arc::new(App::new(model, options));
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let connections = Connections::new(&app);
        let mut signals = signals(app.model.engine.clone())?;
        tokio::select! {
            () = connections.accept(&listener) => {}
            () = wait(&mut signals, 1) => {}
        }
        tracing::info!("ending: running answers have {drain_limit:?}");
        app.drain();
        drop(listener);
        let mut ending = tokio::spawn(connections.end());
        let cut = async {
            let _ = timeout(drain_limit, wait(&mut signals, 2)).await;
        };
        tokio::select! {
            _ = &mut ending => return Ok(()),
            () = cut => tracing::warn!("cutting off the answers that still run"),
        }
        let engine = app.model.engine.clone();
        let stop = tokio::task::spawn_blocking(move || engine.shutdown());
        let _ = timeout(Duration::from_secs(2), async {
            let _ = stop.await;
            let _ = ending.await;
        })
        .await;
        Ok(())
    }
}

/// All open connections.
struct Connections {
    router: Router,
    open: GracefulShutdown,
    head_timeout: Duration,
    write_timeout: Duration,
}

impl Connections {
    fn new(app: &Arc<App>) -> Self {
        Self {
            router: router(Arc::clone(app)),
            open: GracefulShutdown::new(),
            head_timeout: app.options.head_timeout,
            write_timeout: app.options.write_timeout,
        }
    }

    /// Takes connections for ever.
    async fn accept(&self, listener: &tokio::net::TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(self.connection(stream));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: some will come back.
                    tracing::error!("cannot take a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// The life of one connection.
    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + use<> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        let stream = TokioIo::new(Patient::new(stream, self.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(stream, TowerToHyperService::new(self.router.clone()));
        let watched = self.open.watch(connection);
        async {
            if let Err(error) = watched.await {
                tracing::debug!("a connection ended: {error:?}");
            }
        }
    }

    /// Waits until all connections have ended; each ends after its current response.
    async fn end(self) {
        self.open.shutdown().await;
    }
}

/// Counts what asks the process to end: signals, and the loss of the engine.
fn signals(engine: EngineHandle) -> Result<watch::Receiver<u32>> {
    let (count, receiver) = watch::channel(0);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        let mut lost = pin!(lost(engine));
        let mut known = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = &mut lost, if !known => known = true,
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// Returns once, when the engine has failed.
async fn lost(engine: EngineHandle) {
    while engine.failure().is_none() {
        sleep(Duration::from_millis(100)).await;
    }
}

async fn wait(signals: &mut watch::Receiver<u32>, count: u32) {
    let _ = signals.wait_for(|seen| *seen >= count).await;
}
