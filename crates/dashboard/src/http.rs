//! One thread that speaks HTTP/1.1.
//!
//! What is always true: at most [`MAX_CONNECTIONS`] connections; one that sends no complete header
//! for [`HEADER_TIMEOUT`], or does not end its TLS handshake within it, is closed; a header is at most [`MAX_HEADER_BYTES`]; bodies are not read.

use crate::site::{Site, Transport};
use crate::{ShowValues, StatusSource};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use os::{JoinHandle, Os};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tls::{Certificates, Mode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsAcceptor;

/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;

/// How long a client may take over a header, or say nothing between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long who said a wrong password waits for the answer.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(500);

/// Room for a request line and its headers.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// The wait after an accept that failed, for want of descriptors perhaps.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// What a TLS connection begins with; no request of HTTP does.
const HANDSHAKE: u8 = 0x16;

/// How the status port speaks TLS: who asks it is asked for no certificate.
#[derive(Clone, Debug)]
pub struct PageTls {
    /// Whether TLS is offered or required.
    pub mode: Mode,
    /// The certificate that the server presents.
    pub certificates: Arc<Certificates>,
}

/// A running status port. Dropping it ends it.
#[derive(Debug)]
pub struct StatusPort {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle>,
}

impl StatusPort {
    /// Serves on sockets that listen already; `names` are the hosts that requests may name beside
    /// addresses and `localhost`; `show_values` says who sees what clients sent; without `tls` all of it is plain.
    ///
    /// # Errors
    /// Where there is no thread or no event loop to be had.
    pub fn start(
        os: &Os,
        listeners: Vec<TcpListener>,
        names: Vec<String>,
        show_values: ShowValues,
        source: Arc<dyn StatusSource>,
        tls: Option<PageTls>,
    ) -> io::Result<Self> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let site = Arc::new(Site::new(names, show_values, source));
        let job = move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async move {
                let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
                for listener in listeners {
                    let (room, site) = (Arc::clone(&room), Arc::clone(&site));
                    spawn_local(accept(listener, room, site, tls.clone()));
                }
                // An error means that the handle is gone, which asks for the same.
                let _told_or_dropped = stopped.await;
            });
        };
        let thread = os.spawner.spawn("status-port", Box::new(job))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatusPort {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was logged where it happened.
            let _ended = thread.join();
        }
    }
}

async fn accept(
    listener: TcpListener,
    room: Arc<Semaphore>,
    site: Arc<Site>,
    tls: Option<PageTls>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (site, tls) = (Arc::clone(&site), tls.clone());
                spawn_local(async move {
                    serve(stream, peer.ip(), site, tls).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

/// Serves a connection by what it begins with.
async fn serve(stream: TcpStream, peer: IpAddr, site: Arc<Site>, tls: Option<PageTls>) {
    let Some(PageTls { mode, certificates }) = tls else {
        return answer_all(stream, peer, site, Transport::Plain).await;
    };
    let mut first = [0];
    let begins = tokio::time::timeout(HEADER_TIMEOUT, stream.peek(&mut first)).await;
    match (begins, first) {
        (Ok(Ok(1)), [HANDSHAKE]) => {
            let acceptor = TlsAcceptor::from(certificates.now().for_pages());
            let accepted = tokio::time::timeout(HEADER_TIMEOUT, acceptor.accept(stream)).await;
            // Who does not come to an end with it is not there to be told.
            if let Ok(Ok(stream)) = accepted {
                let transport = if mode == Mode::Require {
                    Transport::RequiredTls
                } else {
                    Transport::OptionalTls
                };
                answer_all(stream, peer, site, transport).await;
            }
        }
        (Ok(Ok(1)), _) if mode != Mode::Require => {
            answer_all(stream, peer, site, Transport::Plain).await;
        }
        _ => {}
    }
}

/// Answers the requests of a connection.
async fn answer_all(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: IpAddr,
    site: Arc<Site>,
    transport: Transport,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = site.answer(&request, peer, transport);
        let is_guess = response.status() == StatusCode::UNAUTHORIZED
            && request.headers().contains_key(header::AUTHORIZATION);
        async move {
            if is_guess {
                tokio::time::sleep(FAILED_LOGIN_DELAY).await;
            }
            Ok::<Response<Full<Bytes>>, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    // A client that left, or spoke something else: nobody is there to be told.
    let _left = served;
}
