/* Stands for a library of NCCL's name that is not NCCL. */
int something(void);
int something(void) { return 0; }
