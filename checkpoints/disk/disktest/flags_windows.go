package disktest

// directoryOnly is the flag that opens nothing but a directory: none here.
const directoryOnly = 0
