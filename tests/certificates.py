"""Certificates for tests, made with the `openssl` command in a directory of their own."""

import atexit
import os
import shutil
import subprocess
import tempfile

HOME = tempfile.mkdtemp(prefix="fernd-tls-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, cwd=HOME)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def path(name):
    return os.path.join(HOME, name)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-subj", f"/O=Tests/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def issue(name, subject, by="ca", days="30", extensions="subjectAltName=DNS:localhost,IP:127.0.0.1"):
    """Makes `name.pem`: a certificate and its key."""
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    more = []
    if extensions:
        with open(path(f"{name}.ext"), "w") as f:
            f.write(extensions + "\n")
        more = ["-extfile", f"{name}.ext"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial",
            "-days", days, "-out", f"{name}.crt", *more)
    join(f"{name}.pem", f"{name}.crt", f"{name}.key")


def join(name, *parts):
    with open(path(name), "wb") as out:
        for part in parts:
            with open(path(part), "rb") as f:
                out.write(f.read())
    os.chmod(path(name), 0o600)
