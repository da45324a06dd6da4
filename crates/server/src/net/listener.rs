//! Listening sockets: where clients may connect.

use crate::net::stream::Stream;
use crate::service::Peer;
use os::Vfs;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Connections the kernel holds for us while we are busy; it caps this at `somaxconn`.
const BACKLOG: i32 = 4096;

/// One place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket file and its permissions.
    Unix(PathBuf, u32),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path, _) => write!(f, "{}", path.display()),
        }
    }
}

/// Why we cannot listen at a place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody else does.
    #[error("{0} is already in use")]
    InUse(Endpoint),
    /// The name is nobody's.
    #[error("bind_ip {0}: {1}")]
    Resolve(String, io::Error),
    /// Anything else the kernel says.
    #[error("cannot listen at {0}: {1}")]
    Other(Endpoint, io::Error),
}

impl Endpoint {
    /// What one word of `--bind_ip` means: a name, an address, `*`, or the path of a socket.
    ///
    /// # Errors
    /// [`BindError::Resolve`].
    pub fn resolve(word: &str, port: u16, ipv6: bool) -> Result<Vec<Self>, BindError> {
        let tcp = |ip: IpAddr| Self::Tcp(SocketAddr::new(ip, port));
        if word.starts_with('/') {
            return Ok(vec![Self::Unix(word.into(), 0o700)]);
        }
        if word == "*" {
            let mut all = vec![tcp([0; 4].into())];
            all.extend(ipv6.then(|| tcp([0_u16; 8].into())));
            return Ok(all);
        }
        if let Ok(ip) = word.parse::<IpAddr>() {
            return Ok(vec![tcp(ip)]);
        }
        let found = (word, port)
            .to_socket_addrs()
            .map_err(|error| BindError::Resolve(word.to_owned(), error))?;
        let mut endpoints: Vec<Self> =
            found.filter(|address| ipv6 || address.is_ipv4()).map(Self::Tcp).collect();
        endpoints.dedup();
        if endpoints.is_empty() {
            let none = io::Error::new(io::ErrorKind::NotFound, "no usable address");
            return Err(BindError::Resolve(word.to_owned(), none));
        }
        Ok(endpoints)
    }
}

enum Socketed {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A bound, listening, non-blocking socket. Dropping a Unix one removes its file.
pub struct Listener {
    socket: Socketed,
    endpoint: Endpoint,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.endpoint)
    }
}

impl Listener {
    /// Binds and listens. With port 0 the kernel chooses, and [`Listener::endpoint`] tells.
    ///
    /// # Errors
    /// [`BindError::InUse`] where another process listens.
    pub fn bind(endpoint: &Endpoint, vfs: &dyn Vfs) -> Result<Self, BindError> {
        let bound = match endpoint {
            Endpoint::Tcp(address) => bind_tcp(*address),
            Endpoint::Unix(path, mode) => bind_unix(path, *mode, vfs),
        };
        bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(endpoint.clone()),
            _ => BindError::Other(endpoint.clone(), error),
        })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The TCP socket itself, for another server than ours.
    ///
    /// # Errors
    /// Where it is not one, or there are no descriptors.
    pub(crate) fn tcp(&self) -> io::Result<TcpListener> {
        match &self.socket {
            Socketed::Tcp(listener) => listener.try_clone(),
            Socketed::Unix(_) => Err(io::Error::other("only addresses serve here")),
        }
    }

    /// The next waiting connection with the names of both ends, if one waits.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socketed::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                let local = stream.local_addr()?.to_string();
                Ok((Stream::Tcp(stream), Peer { remote: remote.to_string(), local }))
            }
            Socketed::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let (remote, local) =
                    ("anonymous unix socket".to_owned(), self.endpoint.to_string());
                Ok((Stream::Unix(stream), Peer { remote, local }))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socketed::Tcp(listener) => listener.as_fd(),
            Socketed::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Endpoint::Unix(path, _) = &self.endpoint {
            // A file that is gone already is what is wanted.
            let _gone = rustix::fs::unlink(path);
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a server that just stopped must not keep the next one out.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener: TcpListener = socket.into();
    let endpoint = Endpoint::Tcp(listener.local_addr()?);
    Ok(Listener { socket: Socketed::Tcp(listener), endpoint })
}

fn bind_unix(path: &Path, mode: u32, vfs: &dyn Vfs) -> io::Result<Listener> {
    if vfs.exists(path)? {
        // A file nobody listens at was left by a killed server.
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        vfs.remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(Listener {
        socket: Socketed::Unix(listener),
        endpoint: Endpoint::Unix(path.to_owned(), mode),
    })
}
