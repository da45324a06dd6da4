//! Listening sockets: where clients may connect.

use crate::stream::Stream;
use dispatch::ConnectionInfo;
use os::Vfs;
use rustix::fs::{FileType, Mode};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
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
    pub fn tcp(&self) -> io::Result<TcpListener> {
        match &self.socket {
            Socketed::Tcp(listener) => listener.try_clone(),
            Socketed::Unix(_) => Err(io::Error::other("only addresses serve here")),
        }
    }

    /// The next waiting connection with the names of both ends, if one waits.
    pub(crate) fn accept(&self) -> io::Result<(Stream, ConnectionInfo)> {
        match &self.socket {
            Socketed::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                let local = stream.local_addr()?.to_string();
                Ok((Stream::Tcp(stream), ConnectionInfo { remote: remote.to_string(), local }))
            }
            Socketed::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let (remote, local) =
                    ("anonymous unix socket".to_owned(), self.endpoint.to_string());
                Ok((Stream::Unix(stream), ConnectionInfo { remote, local }))
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

/// Makes the socket under a name of its own and renames it once nothing is left to do: who finds it
/// under its name finds it with its permissions, and listening. What stands there is replaced only
/// where it is a socket that nobody listens at, left by a killed server.
fn bind_unix(path: &Path, mode: u32, vfs: &dyn Vfs) -> io::Result<Listener> {
    check_directory(path)?;
    if vfs.exists(path)? {
        let stat = rustix::fs::lstat(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            let text = format!("{} is there and no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    if vfs.exists(&new)? {
        vfs.remove_file(&new)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file is made with the permissions that the socket itself has, whatever the umask is.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(&new)?)?;
    let ready = net::listen(&socket, BACKLOG)
        .and_then(|()| rustix::fs::chmod(&new, Mode::from_raw_mode(mode)))
        .and_then(|()| rustix::fs::rename(&new, path));
    if let Err(error) = ready {
        // Nobody knows it under this name.
        let _gone = rustix::fs::unlink(&new);
        return Err(error.into());
    }
    Ok(Listener {
        socket: Socketed::Unix(UnixListener::from(socket)),
        endpoint: Endpoint::Unix(path.to_owned(), mode),
    })
}

/// Refuses a directory in which another user could put a socket of his own in the place of ours.
fn check_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mode = Mode::from_raw_mode(rustix::fs::stat(directory)?.st_mode);
    if mode.intersects(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "every user may replace files in {}: it is not sticky (chmod +t)",
                directory.display()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::Os;
    use std::os::unix::fs::PermissionsExt;

    fn mode_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn security_finding_17_a_socket_has_its_permissions_from_the_first_moment() {
        let directory = tempfile::tempdir().unwrap();
        let (os, path) = (Os::real(), directory.path().join("s.sock"));
        for mode in [0o700, 0o770, 0o777] {
            let listener = Listener::bind(&Endpoint::Unix(path.clone(), mode), &*os.vfs).unwrap();
            assert_eq!(mode_of(&path), mode);
            assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
            let names = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(names, 1, "nothing is left under the temporary name");
            drop(listener);
        }
        assert!(!path.exists());
    }

    #[test]
    fn security_finding_17_what_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (os, path) = (Os::real(), directory.path().join("precious"));
        std::fs::write(&path, "data").unwrap();
        assert!(Listener::bind(&Endpoint::Unix(path.clone(), 0o700), &*os.vfs).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Listener::bind(&Endpoint::Unix(link, 0o700), &*os.vfs).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn security_finding_17_a_shared_directory_must_be_sticky() {
        let directory = tempfile::tempdir().unwrap();
        let (os, path) = (Os::real(), directory.path().join("s.sock"));
        for (mode, serves) in [(0o777, false), (0o1777, true), (0o755, true)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.path(), permissions).unwrap();
            let bound = Listener::bind(&Endpoint::Unix(path.clone(), 0o700), &*os.vfs);
            assert_eq!(bound.is_ok(), serves, "{mode:o}");
        }
    }
}
