package pgtest

import "syscall"

// attributes make the server end with a test binary that was killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT} }
